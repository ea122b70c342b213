"""Garbage collection inside steps."""

import gc
from collections.abc import Callable, Iterator

import pytest
from support.live import MS, HostFit

from trainperf.core.phases import Gap, Tag
from trainperf.recording.probes.garbage_collector import GarbageProbe


@pytest.fixture
def collecting() -> Iterator[Callable[[HostFit, float], None]]:
    """A collection that takes as long as it is told, and no other."""
    takes = [0.0]
    fits: list[HostFit] = []

    def slow(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            fits[-1].clock.advance(ms=takes[0])

    def collect(fit: HostFit, ms: float) -> None:
        fits.append(fit)
        takes[0] = ms
        gc.callbacks.append(slow)  # after ours: the time passes between our start and our stop
        gc.collect()
        gc.callbacks.remove(slow)

    gc.disable()
    yield collect
    gc.enable()


def test_a_collection_is_charged_to_its_step(
    collecting: Callable[[HostFit, float], None],
) -> None:
    """And only one that took more than a twentieth of it makes it unusual."""
    fit = HostFit(GarbageProbe())
    for pause in (0, 4, 6):
        fit.monitor.recorder.boundary()
        fit.clock.advance(ms=100 - pause)
        if pause:
            collecting(fit, pause)
        fit.monitor.micro_batch(None, None, complete=True)
    fit.finish()

    assert fit.facts("gc_ns") == [0, 4 * MS, 6 * MS]
    assert [bool(record.tags & Tag.GC) for record in fit.sink.records] == [False, False, True]


def test_somebody_may_take_it_away() -> None:
    """As a script that clears all callbacks does; the end of the fit is no fault then."""
    fit = HostFit(GarbageProbe()).steps(1)
    gc.callbacks.clear()
    fit.finish()

    assert fit.monitor.guard.faults == {}


def test_a_collection_outside_steps_is_charged_to_none(
    collecting: Callable[[HostFit, float], None],
) -> None:
    """Validation makes garbage too, and no step is slower for it."""
    fit = HostFit(GarbageProbe())
    collecting(fit, 50)
    fit.steps(1)
    fit.monitor.recorder.rest(Gap.VALIDATION)
    collecting(fit, 50)
    fit.steps(1).finish()

    assert fit.facts("gc_ns") == [0, 0]
    assert not any(record.tags & Tag.GC for record in fit.sink.records)
