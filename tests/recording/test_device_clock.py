"""Events of an asynchronous device: recorded, polled, reused, and never waited for."""

import pytest

from trainperf.recording.device_clock import DeviceClock
from trainperf.testing import FakeClock, SimulatedDevice


def device_clock(most: int = 4096) -> tuple[SimulatedDevice, DeviceClock]:
    """A device with nothing to do, and its clock."""
    device = SimulatedDevice(FakeClock())
    return device, DeviceClock(device, most)


def test_the_lead_is_how_many_marks_are_ahead_of_the_device() -> None:
    """It shrinks as the device comes to them, in order."""
    device, clock = device_clock()
    for _ in range(3):
        device.work(2)
        clock.mark()
    leads = []
    for _ in range(4):
        leads.append(clock.lead())
        device.clock.advance(ms=2)

    assert leads == [3, 2, 1, 0]
    assert device.synchronizations == 0


def test_an_event_is_reused_only_after_it_was_given_back() -> None:
    """Two marks in flight are two events; later ones make no new ones."""
    device, clock = device_clock()
    first, second = clock.mark(), clock.mark()
    assert first is not second

    clock.release([first])

    assert clock.mark() is first
    assert device.synchronizations == 0


def test_an_event_that_is_used_again_counts_once() -> None:
    """Nobody asked for the lead in between: its earlier use is not taken for the new one."""
    device, clock = device_clock()
    events = [clock.fences()[0] for _ in range(3)]
    clock.release(events)
    device.work(5)
    clock.mark()

    assert clock.lead() == 1


def test_beyond_the_pool_a_mark_is_given_up_and_counted() -> None:
    """Memory is bounded, and a mark that was not made says so."""
    device, clock = device_clock(most=2)
    device.work(10)
    made = [clock.mark() for _ in range(4)]

    assert [event is None for event in made] == [False, False, True, True]
    assert clock.dropped == 2


def test_a_fence_is_never_given_up() -> None:
    """Without it nobody would know when the group's values may be read."""
    device, clock = device_clock(most=1)
    device.work(10)
    clock.mark()
    fence = clock.fences()[0]

    assert not fence.query()
    assert clock.lead() == 2
    device.clock.advance(ms=10)
    assert fence.query()
    assert clock.dropped == 0


def test_the_time_to_an_event_not_reached_is_an_error() -> None:
    """As on a real device: nobody may read before the fence has passed."""
    device, clock = device_clock()
    start = clock.fences()[0]
    device.work(5)

    with pytest.raises(RuntimeError, match="before"):
        start.elapsed_time(clock.fences()[0])
