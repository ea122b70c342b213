"""Workers of the loader: which of them make batches, by samples inside of each."""

from collections import Counter, defaultdict
from dataclasses import dataclass

from trainperf.analysis.summary.lines import FEWEST_SAMPLES
from trainperf.core.artifacts.lines import SampledLines
from trainperf.core.findings import LIMITS


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
        """How many make batches, for a part of the busiest one's time that is worth a word."""
        least = LIMITS.worth * max(self.making)
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
