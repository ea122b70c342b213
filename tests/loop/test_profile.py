"""Captures of a plain loop: the same options as under Lightning, and the same files."""

import logging
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from support.loop_ranks import LATE_MS, train_traced
from support.loops import Loader, Sleeper, quiet, written
from support.profiler import torch_profiles, traces_of

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.phases import Gap, Tag
from trainperf.loop import LoopMonitor
from trainperf.recording.profiling.options import ScheduledProfile
from trainperf.traces.capture_files import read_all


def train(monitor: LoopMonitor, steps: int, *, touch_at: int | None = None) -> LoopMonitor:
    """So many steps of 4 ms in the loader and a forward."""
    model = torch.nn.Linear(4, 4)
    with monitor.watch(model):
        for number, batch in enumerate(monitor.batches(Loader(Sleeper(), steps, ms=4))):
            with monitor.phase("forward"):
                model(batch["x"])
            monitor.end_step()
            if number == touch_at and monitor.run is not None:
                (monitor.run / "capture").touch()
    assert monitor.run is not None
    return monitor


def test_a_plain_loop_is_traced_as_planned(tmp_path: Path) -> None:
    """Steps and phases marked, warm-up and traced steps tagged, the writing in no step."""
    profile = ScheduledProfile(wait=3, warmup=1, active=2, analyse=False)
    monitor = train(quiet(tmp_path, profile=profile), 14)

    (trace,) = traces_of(tmp_path / "trainperf").values()
    assert trace.steps() == [4, 5]
    assert trace.phases(4) == ["data_wait", "forward", "callbacks", "loop"]
    found = written(monitor)
    assert [step.index for step in found.steps if step.tags & Tag.PROFILED] == [3, 4, 5, 6]
    assert found.gap_s(Gap.PROFILER_DUMP.label)
    assert found.totals.faults == {}
    assert not torch_profiles()


def test_the_report_compares_records_and_trace(tmp_path: Path) -> None:
    """Read while the loop ran; the loader's 4 ms are in both."""
    train(quiet(tmp_path, profile=ScheduledProfile(wait=3, warmup=1, active=5)), 14)

    (traced,) = summarize(Run.open(tmp_path / "trainperf")).traces
    assert (traced.recorded_s or 0.0) >= 0.004
    assert (traced.traced_s or 0.0) >= 0.004
    assert traced.agree


def test_a_capture_is_made_on_demand(tmp_path: Path) -> None:
    """Touching `capture` in the run directory, looked for once a second."""
    profile = ScheduledProfile(skip_first=10**9, warmup=1, active=2, analyse=False)
    train(quiet(tmp_path, profile=profile), 300, touch_at=20)

    (trace,) = traces_of(tmp_path / "trainperf").values()
    assert len(trace.steps()) == 2


def test_without_a_run_directory_nothing_is_captured_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There is nowhere to write to; the loop is measured all the same."""
    monitor = quiet(None, profile=ScheduledProfile(wait=0))
    with caplog.at_level(logging.WARNING), monitor:
        for _ in monitor.batches(range(8)):
            monitor.end_step()

    assert "no captures: there is no run directory" in caplog.text
    assert monitor.monitor.recorder.index == 7


def test_ranks_that_do_not_exist_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Known only when the loop begins; nothing fails for it."""
    with caplog.at_level(logging.WARNING):
        train(quiet(tmp_path, profile=ScheduledProfile(wait=0, ranks=(2,))), 8)

    assert "ranks=(2,): the last rank of this fit is 0" in caplog.text
    assert traces_of(tmp_path / "trainperf") == {}


@pytest.mark.slow
@pytest.mark.ddp
def test_ranks_that_trace_the_same_steps_have_one_answer(tmp_path: Path) -> None:
    """Read together by rank 0 when the fit has ended; the lowest is compared with its records."""
    mp.spawn(train_traced, args=(tmp_path,), nprocs=2)

    (run,) = (tmp_path / "runs").iterdir()
    (report,) = read_all(run)
    assert [path.name for path in (run / "traces").glob("*.analysis.json")] == [
        "step000004-3steps.analysis.json"
    ]
    assert (report.capture.first_step, report.capture.complete_steps) == (4, 3)
    assert len(report.ranks) == 2
    traces = summarize(Run.open(run)).traces
    assert [traced.rank for traced in traces] == [0, 1]
    assert (traces[0].recorded_s or 0.0) > LATE_MS / 1e3
    assert (traces[0].traced_s or 0.0) > LATE_MS / 1e3
    assert traces[1].recorded_s is None
