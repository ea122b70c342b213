"""The clocks and devices that ship for tests of your own meters."""

import pytest

from trainperf.core.phases import Phase
from trainperf.testing import FakeClock, SimulatedDevice, make_record


def test_a_fake_clock_stands_still_until_told() -> None:
    """In whole nanoseconds."""
    clock = FakeClock(5)
    assert (clock(), clock()) == (5, 5)

    clock.advance(ms=1.5, ns=2)

    assert clock() == 1_500_007


def test_a_fake_clock_can_tick() -> None:
    """Every reading takes as long as it would."""
    clock = FakeClock(0, tick_ns=3)

    assert (clock(), clock()) == (3, 6)


def test_a_fake_clock_is_monotonic() -> None:
    """Going back is refused: no recorded log does it."""
    clock = FakeClock(10)
    clock.set(20)

    with pytest.raises(ValueError, match="monotonic"):
        clock.set(19)
    assert clock() == 20


def test_a_device_works_while_the_host_goes_on() -> None:
    """Work queues up behind work; an idle device begins at once."""
    device = SimulatedDevice(FakeClock(0))
    device.work(5)
    device.work(3)
    assert device.clock() == 0
    assert device.idle_at_ns() == 8_000_000

    device.clock.advance(ms=20)
    device.work(1)

    assert device.idle_at_ns() == 21_000_000


def test_an_event_is_reached_when_the_work_before_it_is_done() -> None:
    """And not by asking."""
    device = SimulatedDevice(FakeClock())
    device.work(5)
    event = device.event()
    assert not event.query()
    event.record()
    assert not event.query()

    device.clock.advance(ms=5)

    assert event.query()
    assert device.queries == 3


@pytest.mark.parametrize("by", ["event", "device"])
def test_waiting_for_the_device_takes_time_and_is_counted(by: str) -> None:
    """That is how a test sees a synchronisation."""
    device = SimulatedDevice(FakeClock(0))
    device.work(5)
    event = device.event()
    event.record()
    device.work(2)

    (event if by == "event" else device).synchronize()

    assert device.clock() == (5_000_000 if by == "event" else 7_000_000)
    assert device.synchronizations == 1


def test_a_broken_device_fails_at_every_call() -> None:
    """As a CUDA context does after an assertion on the device."""
    device = SimulatedDevice(FakeClock())
    event = device.event()
    event.record()
    device.broken = True

    uses = (event.record, event.query, event.synchronize, device.synchronize)
    for use in (*uses, lambda: event.elapsed_time(event)):
        with pytest.raises(RuntimeError, match="broken"):
            use()
    assert device.synchronizations == 0


def test_what_the_phases_of_a_record_leave_is_other() -> None:
    """A record of ten milliseconds has ten."""
    record = make_record(wall_s=0.01, phases_s={Phase.FORWARD: 0.004})

    assert record.wall_ns == 10_000_000
    assert record.host_ns[Phase.OTHER] == 6_000_000


def test_phases_longer_than_the_step_are_refused() -> None:
    """No phase of a step is longer than it."""
    with pytest.raises(ValueError, match=r"wall_s=0\.01"):
        make_record(wall_s=0.01, phases_s={Phase.FORWARD: 0.02})
