"""Uses of a step's memory, from its allocations replayed: what was alive, and when."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainperf.audit.allocations import AllocationTimeline
from trainperf.core.artifacts.memory import Category


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory of a step's tensors."""

    activations_bytes: int | None
    """Most that forward had left alive when a backward began; `None` without a backward."""
    by_module: Mapping[str | None, int]
    """The same by the module that made it."""
    gradients_bytes: int
    peak_bytes: int
    """Most that was alive at a time."""
    at_peak: Mapping[Category, int]
    """The same by category."""


def memory_use(timeline: AllocationTimeline, states: frozenset[int] = frozenset()) -> MemoryUse:
    """Replay a step: what was alive at its peak, and when backward began.

    Args:
        timeline: Of the step.
        states: Storages that became optimizer state in it.
    """
    saved = _saved(timeline)
    left = max(saved, key=lambda alive: sum(_sizes(timeline, alive)), default=None)
    kept = frozenset(number for alive in saved for number in alive)
    by_module: Counter[str | None] = Counter()
    for number in left or ():
        by_module[timeline.allocations[number].module] += timeline.allocations[number].size_bytes
    peak = _alive_at(timeline, _peak(timeline))
    at_peak: Counter[Category] = Counter()
    for number in peak:
        category = "optimizer state" if number in states else _category(timeline, number, kept)
        at_peak[category] += timeline.allocations[number].size_bytes
    return MemoryUse(
        activations_bytes=None if left is None else sum(by_module.values()),
        by_module=by_module,
        gradients_bytes=timeline.gradients_bytes,
        peak_bytes=sum(_sizes(timeline, peak)),
        at_peak=at_peak,
    )


def _saved(timeline: AllocationTimeline) -> list[frozenset[int]]:
    """What forward had made and not freed, at each beginning of a backward."""
    forward = {n for n, each in enumerate(timeline.allocations) if each.part == "forward"}
    return [frozenset(_alive_at(timeline, at) & forward) for at in timeline.backwards]


def _category(timeline: AllocationTimeline, number: int, saved: frozenset[int]) -> Category:
    if number in timeline.gradients or timeline.allocations[number].part is None:
        return "gradients"
    return "activations" if number in saved else "temporaries"


def _sizes(timeline: AllocationTimeline, numbers: Iterable[int]) -> list[int]:
    return [timeline.allocations[number].size_bytes for number in numbers]


def _peak(timeline: AllocationTimeline) -> int:
    """Place in the events after which most is alive."""
    alive, most, place = 0, 0, 0
    for at, event in enumerate(timeline.events, start=1):
        size = timeline.allocations[event if event >= 0 else -event - 1].size_bytes
        alive += size if event >= 0 else -size
        if alive > most:
            most, place = alive, at
    return place


def _alive_at(timeline: AllocationTimeline, place: int) -> set[int]:
    alive: set[int] = set()
    for event in timeline.events[:place]:
        if event >= 0:
            alive.add(event)
        else:
            alive.discard(-event - 1)
    return alive
