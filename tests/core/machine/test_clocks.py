"""How fast the host is: a fixed piece of Python, timed between steps all along."""

import pytest
from support.live import MS, HostFit

from trainperf.core.machine import clocks
from trainperf.core.machine.clocks import pace_ns
from trainperf.recording.probes.pace import PaceProbe
from trainperf.testing import FakeClock


def test_the_second_of_two_runs_of_the_work_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first fetches what the step has pushed out of the caches."""
    clock, lengths = FakeClock(), iter([9.0, 3.0])
    monkeypatch.setattr(clocks, "_fixed_work", lambda: clock.advance(ms=next(lengths)))

    assert pace_ns(clock) == 3 * MS


def test_on_a_clock_that_stands_still_it_is_not_known() -> None:
    """A machine is not infinitely fast."""
    assert pace_ns(FakeClock()) is None


def test_it_is_timed_as_often_as_its_own_cost_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice 5 µs of work, at a thousandth of the time: every 10 ms, in steps of 1 ms."""
    works: list[HostFit] = []
    monkeypatch.setattr(clocks, "_fixed_work", lambda: works and works[0].clock.advance(ms=0.005))
    works.append(fit := HostFit(PaceProbe()))
    records = fit.steps(100).finish().sink.records
    timed = [record.index for record in records if record.facts["pace_ns"] is not None]

    assert timed[0] == 0
    assert {record.facts["pace_ns"] for record in records} == {None, 5000}
    assert len(timed) == pytest.approx(100 * MS / 1000 / 10_000, abs=1)


def test_a_timing_that_was_interrupted_does_not_put_off_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second takes a second: the next is due after four times what the shortest one allows."""
    works: list[HostFit] = []
    lengths = iter([0.005] * 2 + [1000.0] * 2 + [0.005] * 100)
    monkeypatch.setattr(
        clocks, "_fixed_work", lambda: works and works[0].clock.advance(ms=next(lengths))
    )
    works.append(fit := HostFit(PaceProbe()))
    records = fit.steps(60).finish().sink.records
    timed = [record.index for record in records if record.facts["pace_ns"] is not None]

    assert timed[2] - timed[1] <= 41


def test_its_fault_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit goes on and is written whole, without it."""

    def broken() -> None:
        raise ValueError("of the pace")

    monkeypatch.setattr(clocks, "_fixed_work", broken)
    fit = HostFit(PaceProbe(), tick_ns=10).steps(3).finish()

    assert len(fit.sink.records) == 3
    assert fit.monitor.guard.faults == {"pace": "ValueError: of the pace"}
