"""What the traces of a run said, beside its records of the same steps."""

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from support.fits import Loader, Model, Sleeper, trainer

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary import captures
from trainperf.analysis.summary.captures import disagreements
from trainperf.analysis.summary.schema import Summary
from trainperf.lightning import ScheduledProfiler, TrainPerf
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.run import text
from trainperf.reports.run.document import run_document
from trainperf.traces.capture_files import CaptureReport


LOADER_S = 0.02


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose loader sleeps 20 ms a batch, traced once."""
    path = tmp_path_factory.mktemp("traced")
    slow = Loader(14, slow=Sleeper(LOADER_S))
    trainer(path, TrainPerf(report=False), ScheduledProfiler()).fit(Model(), slow)
    return path / "trainperf"


def altered(recorded: Path, path: Path, *, complete_steps: int = 3, **times: float) -> Summary:
    """A copy of the run, with other values in the analysis of its trace."""
    run = Path(shutil.copytree(recorded, path / "trainperf"))
    (file,) = (run / "traces").glob("*.analysis.json")
    report = msgspec.json.decode(file.read_bytes(), type=CaptureReport)
    (rank,) = report.ranks
    steps = tuple(msgspec.structs.replace(step, **times) for step in rank.steps)
    changed = msgspec.structs.replace(
        report,
        ranks=(msgspec.structs.replace(rank, steps=steps),),
        capture=msgspec.structs.replace(report.capture, complete_steps=complete_steps),
    )
    file.write_bytes(msgspec.json.encode(changed))
    return summarize(Run.open(run))


def test_records_and_trace_say_the_same_of_the_same_steps(recorded: Path) -> None:
    """Step time by two clocks and in two ways; the loader's 20 ms are in both."""
    summary = summarize(Run.open(recorded))

    (traced,) = summary.traces
    assert (traced.first_step, traced.steps, traced.rank) == (7, 3, 0)
    assert disagreements(summary.traces) == []
    assert (traced.recorded_s or 0.0) >= LOADER_S
    assert (traced.traced_s or 0.0) >= LOADER_S
    assert traced.answer
    said = text.render(summary)
    assert f"trace of steps 7–9: {traced.answer}"[:60] in said
    assert "rank0-step000007" not in said


def test_a_disagreement_is_a_warning_of_the_report(recorded: Path, tmp_path: Path) -> None:
    """With both numbers, in every form."""
    summary = altered(recorded, tmp_path, step_s=0.5)

    said = "steps 7–9 (rank 0): step time is"
    (warning,) = [warning for warning in summary.warnings if warning.startswith(said)]
    assert warning.endswith("500 ms in the trace")
    assert said in text.render(summary)
    assert "in the trace" in as_markdown(run_document(summary))


def test_a_step_more_or_less_or_a_restart_and_nothing_is_compared(
    recorded: Path, tmp_path: Path
) -> None:
    """Steps must be in both; a second attempt counts them, and so its traces, from 0 again."""
    more = altered(recorded, tmp_path / "more", complete_steps=4)
    run = Path(shutil.copytree(recorded, tmp_path / "restarted" / "trainperf"))
    first = run / "steps-rank0.jsonl"
    first.with_name("steps-rank0.attempt1.jsonl").write_bytes(
        first.read_bytes().replace(b'"attempt":0', b'"attempt":1', 1)
    )

    for summary in (more, summarize(Run.open(run))):
        (traced,) = summary.traces
        assert traced.answer
        assert traced.recorded_s is traced.traced_s is None


@pytest.mark.parametrize(
    ("recorded_s", "traced_s", "agree"),
    [
        ([1.0] * 3, [1.049] * 3, True),
        ([1.0] * 3, [1.06] * 3, False),
        ([1.06] * 3, [1.0] * 3, False),
        ([1.0, 1.2, 1.4], [1.0, 1.2, 1.0], True),
        ([1.2, 1.2, 1.4], [1.0, 1.0, 1.0], False),
    ],
)
def test_five_percent_apart_is_too_much_but_not_in_one_odd_step(
    recorded_s: list[float], traced_s: list[float], *, agree: bool
) -> None:
    """Of the larger one."""
    assert captures.agree(np.array(recorded_s), np.array(traced_s)) is agree
