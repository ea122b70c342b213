"""What the traces of a run said, beside its records of the same steps."""

from pathlib import Path
from typing import Any

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


def fit(path: Path, *, steps: int = 14, **options: Any) -> Summary:
    """A fit whose loader sleeps 20 ms a batch, traced once."""
    slow = Loader(steps, slow=Sleeper(LOADER_S))
    trainer(path, TrainPerf(report=False), ScheduledProfiler(), **options).fit(Model(), slow)
    (run,) = path.rglob("steps-rank0.jsonl")
    return summarize(Run.open(run.parent))


def altered(run: Path, **times: float) -> Summary:
    """The run again, with other values in the analysis of its trace."""
    (path,) = (run / "traces").glob("*.analysis.json")
    report = msgspec.json.decode(path.read_bytes(), type=CaptureReport)
    (rank,) = report.ranks
    steps = tuple(msgspec.structs.replace(step, **times) for step in rank.steps)
    changed = msgspec.structs.replace(rank, steps=steps)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(report, ranks=(changed,))))
    return summarize(Run.open(run))


@pytest.mark.real_clock
def test_records_and_trace_say_the_same_of_the_same_steps(tmp_path: Path) -> None:
    """Step time by two clocks and in two ways; the loader's 20 ms are in both."""
    summary = fit(tmp_path)

    (traced,) = summary.traces
    assert (traced.first_step, traced.steps, traced.rank) == (7, 3, 0)
    assert disagreements(summary.traces) == []
    assert (traced.recorded_s or 0.0) >= LOADER_S
    assert (traced.traced_s or 0.0) >= LOADER_S


def test_a_disagreement_is_a_warning_of_the_report(tmp_path: Path) -> None:
    """With both numbers, in every form."""
    fit(tmp_path)
    summary = altered(tmp_path / "trainperf", step_s=0.5)

    said = "steps 7–9 (rank 0): step time is"
    (warning,) = [warning for warning in summary.warnings if warning.startswith(said)]
    assert warning.endswith("500 ms in the trace")
    assert said in text.render(summary)
    assert "in the trace" in as_markdown(run_document(summary))


def test_a_step_more_or_less_and_nothing_is_compared(tmp_path: Path) -> None:
    """Steps that are not all in both cannot be set side by side."""
    fit(tmp_path)
    run = tmp_path / "trainperf"
    (path,) = (run / "traces").glob("*.analysis.json")
    report = msgspec.json.decode(path.read_bytes(), type=CaptureReport)
    facts = msgspec.structs.replace(report.capture, complete_steps=4)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(report, capture=facts)))

    (traced,) = summarize(Run.open(run)).traces
    assert traced.recorded_s is traced.traced_s is None


def test_a_restarted_run_is_not_compared(tmp_path: Path) -> None:
    """The second attempt counts its steps, and so its traces, from 0 again."""
    fit(tmp_path)
    run = tmp_path / "trainperf"
    first = run / "steps-rank0.jsonl"
    first.with_name("steps-rank0.attempt1.jsonl").write_bytes(
        first.read_bytes().replace(b'"attempt":0', b'"attempt":1', 1)
    )

    (traced,) = summarize(Run.open(run)).traces
    assert traced.answer
    assert traced.recorded_s is traced.traced_s is None


def test_the_report_tells_what_the_trace_said(tmp_path: Path) -> None:
    """Instead of the file's name, which stands for nothing."""
    summary = fit(tmp_path)

    assert summary.traces[0].answer
    said = text.render(summary)
    assert f"trace of steps 7–9: {summary.traces[0].answer}"[:60] in said
    assert "rank0-step000007" not in said


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
