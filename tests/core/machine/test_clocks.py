"""How fast the host is: timed outside of every step, and never in the way."""

from collections.abc import Iterator

import pytest
from support.live import MS, HostFit

from trainperf.core.machine import clocks
from trainperf.core.machine.clocks import PACE_REPEATS, pace_ns
from trainperf.core.phases import Phase
from trainperf.core.steps.records import EndMark, GapRecord
from trainperf.testing import FakeClock


def test_it_is_the_typical_time_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three milliseconds, though the process was interrupted once for a second."""
    clock = FakeClock()
    lengths: Iterator[float] = iter([3.0] * 5 + [1003.0] + [3.0] * PACE_REPEATS)
    monkeypatch.setattr(clocks, "_fixed_work", lambda: clock.advance(ms=next(lengths)))

    assert pace_ns(clock) == 3 * MS


def test_on_a_clock_that_stands_still_it_is_not_known() -> None:
    """A machine is not infinitely fast."""
    assert pace_ns(FakeClock()) is None


def paced(monkeypatch: pytest.MonkeyPatch, ms: float) -> HostFit:
    """A fit beside which the work takes so long."""
    works: list[HostFit] = []
    monkeypatch.setattr(clocks, "_fixed_work", lambda: works and works[0].clock.advance(ms=ms))
    works.append(fit := HostFit())
    return fit


def test_the_time_it_takes_is_no_step_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for in the middle of a phase of the last step, it is in the gap after it."""
    fit = paced(monkeypatch, ms=2).steps(5)
    fit.monitor.recorder.enter(Phase.CALLBACKS)
    fit.clock.advance(ms=7)
    fit.finish()

    (end,) = fit.entries(EndMark)
    gaps = {gap.gap: gap.duration_ns for gap in fit.sink.all_entries if isinstance(gap, GapRecord)}
    walls = [record.wall_ns for record in fit.sink.records]
    assert isinstance(end, EndMark)
    assert end.pace_ns == 2 * MS
    assert walls == [1 * MS] * 4 + [8 * MS]
    assert gaps["shutdown"] == (1 + PACE_REPEATS) * 2 * MS
    assert sum(walls) + sum(gaps.values()) == end.fit_ns


def test_it_is_in_the_first_line_and_in_the_last() -> None:
    """Of a clock that takes 10 ns to read the work takes as long."""
    fit = HostFit(tick_ns=10).steps(3).finish()
    (end,) = fit.entries(EndMark)

    assert isinstance(end, EndMark)
    assert (fit.sink.info.pace_ns, end.pace_ns) == (10, 10)


def test_its_fault_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit goes on and is written whole, without it."""

    def broken() -> None:
        raise ValueError("of the pace")

    monkeypatch.setattr(clocks, "_fixed_work", broken)
    fit = HostFit(tick_ns=10).steps(3).finish()
    (end,) = fit.entries(EndMark)

    assert isinstance(end, EndMark)
    assert (fit.sink.info.pace_ns, end.pace_ns) == (None, None)
    assert len(fit.sink.records) == 3
    assert fit.monitor.guard.faults == {"pace": "ValueError: of the pace"}
