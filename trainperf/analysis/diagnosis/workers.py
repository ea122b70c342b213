"""What the workers of the loader were seen to do, by samples inside of them."""

from collections import Counter, defaultdict
from dataclasses import dataclass

from trainperf.core.artifacts.lines import SampledLines


FEWEST_SAMPLES = 10
"""Fewer of all workers together say nothing."""
_WORKS = 0.02
"""Share of the busiest worker's time from which on another one works at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderWorkers:
    """Those of the loader whose workers made batches for longest."""

    making: tuple[float, ...]
    """By number: share of the longest worker's time in which it made batches; 0 for a worker that
    ended, or was never asked, before it was seen to make any."""
    iterable: bool
    """Whether each goes through a part of an `IterableDataset`."""

    @property
    def at_work(self) -> int:
        """How many make batches."""
        least = _WORKS * max(self.making)
        return sum(share > least for share in self.making)


def loader_workers(lines: SampledLines | None) -> LoaderWorkers | None:
    """Of all epochs together; `None` where none were sampled."""
    if lines is None or sum(worker.samples for worker in lines.workers) < FEWEST_SAMPLES:
        return None
    making_s: dict[int, Counter[int]] = defaultdict(Counter)
    all_s: dict[int, Counter[int]] = defaultdict(Counter)
    for each in lines.workers:
        making_s[each.dataset][each.worker] += each.making_s  # type: ignore[assignment]
        all_s[each.dataset][each.worker] += each.making_s + each.waiting_s  # type: ignore[assignment]
    dataset = max(making_s, key=lambda loader: making_s[loader].total())
    its = next(each for each in lines.workers if each.dataset == dataset)
    longest_s = max(all_s[dataset].values())
    if not longest_s:
        return None
    made_s = making_s[dataset]
    return LoaderWorkers(
        making=tuple(made_s[number] / longest_s for number in range(its.of)),
        iterable=its.iterable,
    )
