"""A capture after a step that was slow: when, how often, and when not."""

from pathlib import Path

import pytest
from support.profiler import NEVER, Captured, schedule

from trainperf.core.errors import ConfigError
from trainperf.core.phases import Phase, Tag
from trainperf.recording.profiling.options import ScheduledProfile


ORDINARY_MS = 6  # of a step of `Captured`
LEARNED = 28
"""Twelve steps of warm-up and the sixteen of the first median."""


def captured(path: Path, factor: float = 2.0, most: int = 3) -> Captured:
    """A timeline that is traced after slow steps alone."""
    return Captured(path, schedule(on_slow_step=factor, slow_captures=most, **NEVER))


def test_the_steps_after_a_slow_one_are_traced(tmp_path: Path) -> None:
    """Two to warm up, three to trace; the run's notes say after which step."""
    run = captured(tmp_path).train(40).train(1, slower_ms=2 * ORDINARY_MS).train(20).finish()

    assert [trace.steps() for trace in run.traces()] == [[43, 44, 45]]
    assert run.profiled() == [*range(41, 47)]
    assert run.probe.notes()["captures_slow"] == (
        "traced after steps of more than 2 × the median: 40"
    )


@pytest.mark.parametrize(("extra_ms", "traces"), [(5, 0), (7, 1)])
def test_slow_is_more_than_so_many_times_the_median(
    tmp_path: Path, extra_ms: int, traces: int
) -> None:
    """The median is 6 ms, so 11 ms are not twice as much and 13 are."""
    run = captured(tmp_path).train(40).train(1, slower_ms=extra_ms).train(20).finish()

    assert len(run.traces()) == traces


def test_so_many_captures_and_no_more(tmp_path: Path) -> None:
    """However many steps are slow."""
    run = captured(tmp_path, most=2).train(40)
    for _ in range(5):
        run.train(1, slower_ms=20).train(29)
    run.finish()

    assert [trace.steps()[0] for trace in run.traces()] == [43, 73]


def test_the_warm_up_asks_for_nothing(tmp_path: Path) -> None:
    """The first steps are slow in every fit, and nothing is known to compare the next ones with."""
    run = captured(tmp_path)
    for step in range(LEARNED):
        run.train(1, slower_ms=100 if step % 7 == 0 else 0)
    run.train(10).finish()

    assert run.traces() == []


def test_a_step_with_a_tag_has_its_reason(tmp_path: Path) -> None:
    """Slow after validation, or at the beginning of an epoch: no anomaly."""
    run = captured(tmp_path).train(40)
    run.validate()
    run.train(1, slower_ms=50)
    run.recorder.epoch_ended()
    run.train(1, slower_ms=50).train(10).finish()

    tags = [step.tags for step in run.steps if sum(step.host_ns) > 50_000_000]
    assert [bool(tag & (Tag.AFTER_VALIDATION | Tag.FIRST_IN_EPOCH)) for tag in tags] == [True, True]
    assert run.traces() == []


def test_a_slow_step_inside_a_capture_asks_for_no_other(tmp_path: Path) -> None:
    """The profiler makes steps slow; it must not feed itself."""
    run = captured(tmp_path).train(40).train(1, slower_ms=20).train(6, slower_ms=20)
    run.train(20).finish()

    assert len(run.traces()) == 1


def test_a_run_that_stays_slow_has_a_new_median(tmp_path: Path) -> None:
    """It is asked about the change, not about every step from then on."""
    run = captured(tmp_path, most=100).train(60).train(100, slower_ms=20).finish()

    assert [trace.steps()[0] for trace in run.traces()] == [63]


def test_a_slow_step_is_told_by_its_own_time_and_not_by_a_gap(tmp_path: Path) -> None:
    """A checkpoint of a second lies between steps, and in none."""
    run = captured(tmp_path).train(40)
    run.recorder.boundary()
    run.spend(Phase.DATA_WAIT, 2)
    with run.probe._dumping():
        run.wait(1000)
    run.spend(Phase.FORWARD, 4)
    run.recorder.micro_batch_done(complete=True)
    run.recorder.last_hook_done()
    run.train(10).finish()

    assert run.traces() == []


@pytest.mark.parametrize("factor", [1, 0.5, -2, float("nan"), float("inf"), True, "2"])
def test_a_factor_that_means_nothing_is_refused(factor: object) -> None:
    """When the profile is made, with the remedy."""
    with pytest.raises(ConfigError, match=r"on_slow_step=.*try on_slow_step=2\.0"):
        ScheduledProfile(on_slow_step=factor)


def test_no_captures_at_all_are_refused() -> None:
    """`None` is the way to say so."""
    with pytest.raises(ConfigError, match="slow_captures=0"):
        ScheduledProfile(on_slow_step=2.0, slow_captures=0)


def test_a_plan_besides_goes_on_as_planned(tmp_path: Path) -> None:
    """Cycles and slow steps are two reasons for the same kind of capture."""
    run = Captured(tmp_path, schedule(on_slow_step=2.0))
    run.train(50).train(1, slower_ms=20).train(12).finish()

    assert [trace.steps()[0] for trace in run.traces()] == [7, 53]
