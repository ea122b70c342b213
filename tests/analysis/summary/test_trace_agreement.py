"""What the traces of a run said, beside its records of the same steps."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.doctor import Planted, make_capture
from support.fits import Loader, Model, Sleeper, trainer
from support.runs import make_steps

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary import captures
from trainperf.analysis.summary.captures import disagreements
from trainperf.lightning import ScheduledProfiler, TrainPerf
from trainperf.reports.run import text
from trainperf.traces.results import TraceTotals


LOADER_S = 0.02


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose loader sleeps 20 ms a batch, traced once."""
    path = tmp_path_factory.mktemp("traced")
    slow = Loader(14, slow=Sleeper(LOADER_S))
    trainer(path, TrainPerf(report=False), ScheduledProfiler()).fit(Model(), slow)
    return path / "trainperf"


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


APART = "steps 100–102 (rank 0): step time is 20.0 ms in the records and 500 ms in the trace"


@pytest.mark.parametrize(
    ("traced_s", "said"),
    # A step must be in both.
    [([0.5] * 3, [APART]), ([0.02] * 3, []), ([0.5] * 2, [])],
    ids=["apart", "alike", "a step less"],
)
def test_a_disagreement_is_a_warning_with_both_numbers(
    traced_s: list[float], said: list[str], tmp_path: Path
) -> None:
    """Of steps of 20 ms, of which three were traced."""
    capture = make_capture(TraceTotals(steps=3, step_s=0.02), steps_s=traced_s)
    summary = Planted(steps=make_steps(200, forward=20), capture=capture).evidence(tmp_path).summary

    assert [each.recorded_s is None for each in summary.traces] == [len(traced_s) == 2]
    assert [each for each in summary.warnings if "in the trace" in each] == said


def test_after_a_restart_nothing_is_compared(recorded: Path, tmp_path: Path) -> None:
    """A second attempt counts its steps, and so its traces, from 0 again."""
    run = Path(shutil.copytree(recorded, tmp_path / "trainperf"))
    first = run / "steps-rank0.jsonl"
    first.with_name("steps-rank0.attempt1.jsonl").write_bytes(
        first.read_bytes().replace(b'"attempt":0', b'"attempt":1', 1)
    )

    (traced,) = summarize(Run.open(run)).traces
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
