"""Runs from logs that are compared with one another, or with one that was recorded."""

from pathlib import Path

from support import logs
from support.imported import imported
from support.runs import RankSpec, make_info, make_run_dir, make_steps

from trainperf.analysis.run.directory import Run
from trainperf.comparison.compare import compare
from trainperf.comparison.compared_run import ComparedRun, read_run


def run_of(folder: Path, text: str) -> ComparedRun:
    """A log as a run to compare."""
    return read_run(Run.open(imported(folder, text)))


def test_steps_that_are_timed_otherwise_are_no_slower(tmp_path: Path) -> None:
    """One DeepSpeed log has the engine's timers alone, the other times of day as well."""
    times = logs.steady(300, logs.DEEPSPEED)
    engine = run_of(tmp_path / "a", logs.deepspeed(times))
    whole = run_of(tmp_path / "b", logs.deepspeed(times, outside_ms=25))

    assert compare([whole], [whole]).verdict != "not comparable"
    found = compare([engine], [whole])

    assert found.verdict == "not comparable"
    assert "a step is the time of day from one update to the next" in found.reason
    assert found.differences == ()


def test_the_log_that_has_no_mean_is_named(tmp_path: Path) -> None:
    """And not the reason for what the other one does not have."""
    every = run_of(tmp_path / "every", logs.trainer_state(2000, 10, 0.5, tokens=2048))
    whole = run_of(tmp_path / "whole", logs.trainer_state(2000, 10, 0.5))

    reason = compare([every], [whole]).reason

    assert reason == "whole: not covered: the log holds one mean over all 2,000 steps"


def test_too_few_means_are_said_to_be_few(tmp_path: Path) -> None:
    """In words, without the name of a reading."""
    long = run_of(tmp_path / "a", logs.megatron(logs.steady(1000, logs.MEGATRON)))
    short = run_of(tmp_path / "b", logs.megatron(logs.steady(200, logs.MEGATRON)))

    reason = compare([long], [short]).reason

    assert reason == "too few means in the steady part of a log for an interval"


def test_what_a_log_does_not_hold_is_no_change(tmp_path: Path) -> None:
    """A recorded run has settings, versions and a device; nothing of it was changed."""
    log = run_of(tmp_path / "log", logs.torchtitan(logs.steady(300, logs.TITAN)))
    info = make_info(device="cpu", config={"num_workers": 2}, hardware={"device_name": "a chip"})
    spec = RankSpec(steps=make_steps(100, forward=10), info=info)
    recorded = read_run(Run.open(make_run_dir(tmp_path / "recorded" / "trainperf", [spec])))

    for found in (compare([log], [recorded]), compare([recorded], [log])):
        assert found.reason == "the log of log does not tell its device"
        assert found.differences == ()
