"""Waits of ranks at a synchronisation point, step by step: partial results that merge exactly.

Of each step the least wait and whose it was, the largest one, and the waits of the ranks that
stand for the typical one; of each rank sums over the steps.  All are whole nanoseconds, so the
order of merging does not matter.

Worked example: in one step ranks 0, 1, 2, 3 wait 9, 1, 8, 9 ms.  Merged in any order, the least is
1 ms and rank 1's, the largest 9 ms.  The typical other rank waits 9 ms, the median of 9, 8, 9: rank
1 is 8 ms late.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from trainperf.core.phases import PHASES, Phase
from trainperf.core.steps.block import StepBlock


TYPICAL_RANKS = 64
"""Of more ranks so many stand for the typical one, evenly spread: the median of the waits of 64 of
them is off by a sixth of their standard deviation.  Of fewer the median is exact."""

FACT = {"backward": "tail_ns"}
"""Point to the fact that is the wait there; at any other it is the time of the phase itself."""

NO_TAIL = "backward without a tail"
"""The point in backward of a strategy whose tail is not covered: the wait is the whole phase."""

Ints = npt.NDArray[np.int64]


def phase_of(point: str) -> Phase:
    """The phase in which ranks meet at a point."""
    return Phase.BACKWARD if point == NO_TAIL else Phase[point.upper()]


def typical_places(ranks: int, most: int = TYPICAL_RANKS) -> frozenset[int]:
    """Places of the ranks that stand for the typical one.

    One from each of *most* equal parts, at changing distances: every 16th rank would be the first
    of its host.
    """
    if ranks <= most:
        return frozenset(range(ranks))
    edges = [part * ranks // most for part in range(most + 1)]
    return frozenset(
        begin + (part * 2_654_435_761 >> 7) % (end - begin)
        for part, (begin, end) in enumerate(pairwise(edges))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSums:
    """One rank's sums over the steps in which the waits of all ranks are known."""

    wait_ns: int
    phases_ns: Ints
    """By phase."""

    def plus(self, other: "RankSums") -> "RankSums":
        """Those of both sets of steps."""
        return RankSums(
            wait_ns=self.wait_ns + other.wait_ns, phases_ns=self.phases_ns + other.phases_ns
        )


@dataclass(slots=True, kw_only=True)
class Waits:
    """Waits of some ranks at one point in the same steps."""

    least_ns: Ints
    last: Ints
    """Place of the rank that waits least: it comes last.  The lowest of several."""
    most_ns: Ints
    typical_ns: dict[int, Ints] = field(default_factory=dict)
    """Place to the waits of a rank that stands for the typical one."""
    sums: dict[int, RankSums] = field(default_factory=dict)
    """Place to the sums of a rank."""
    accumulates: bool = False
    """Whether a step has several micro-batches."""
    synchronous: bool = True
    """Whether the device works in step with the host."""

    @classmethod
    def of(cls, point: str, place: int, block: StepBlock, typical: Collection[int]) -> "Waits":
        """Of one rank, in steps in which its wait is known."""
        wait_ns = _whole(wait_at(point, block))
        phases_ns = np.array([int(block.host_ns(phase).sum()) for phase in PHASES], np.int64)
        return cls(
            least_ns=wait_ns,
            last=np.full(len(wait_ns), place),
            most_ns=wait_ns,
            typical_ns={place: wait_ns} if place in typical else {},
            sums={place: RankSums(wait_ns=int(wait_ns.sum()), phases_ns=phases_ns)},
            accumulates=bool((block.micro_batches > 1).any()),
            synchronous=block.schema.synchronous,
        )

    def __len__(self) -> int:
        return len(self.least_ns)

    def add(self, other: "Waits") -> None:
        """Take those of other ranks in the same steps."""
        theirs = (other.least_ns < self.least_ns) | (
            (other.least_ns == self.least_ns) & (other.last < self.last)
        )
        self.last = np.where(theirs, other.last, self.last)
        self.least_ns = np.minimum(self.least_ns, other.least_ns)
        self.most_ns = np.maximum(self.most_ns, other.most_ns)
        self.typical_ns.update(other.typical_ns)
        self.sums.update(other.sums)
        self.accumulates |= other.accumulates
        self.synchronous &= other.synchronous

    @classmethod
    def joined(cls, parts: "Sequence[Waits]") -> "Waits":
        """Of the same ranks in several sets of steps, in order."""
        first, *later = parts
        sums = dict(first.sums)
        for part in later:
            for place, more in part.sums.items():
                sums[place] = sums[place].plus(more)
        return cls(
            least_ns=np.concatenate([part.least_ns for part in parts]),
            last=np.concatenate([part.last for part in parts]),
            most_ns=np.concatenate([part.most_ns for part in parts]),
            typical_ns={
                place: np.concatenate([part.typical_ns[place] for part in parts])
                for place in first.typical_ns
            },
            sums=sums,
            accumulates=any(part.accumulates for part in parts),
            synchronous=first.synchronous,
        )

    def late_ns(self) -> npt.NDArray[np.float64]:
        """By how much the last rank comes after the typical other one, per step."""
        places, waits = list(self.typical_ns), self._typical_waits()
        # Where the last rank is among them it has the least wait of them, and is no *other* one.
        own = self.last == np.array(places)[:, None]
        ordered = np.sort(np.where(own, np.iinfo(np.int64).max, waits), axis=0)
        others, steps = len(places) - own.any(axis=0), np.arange(len(self))
        middle = ordered[(others - 1) // 2, steps] + ordered[others // 2, steps]
        late: npt.NDArray[np.float64] = middle / 2 - self.least_ns
        return late

    def held_ns(self, late_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """How much longer than the last rank the first one waits that it held up, per step.

        Not held are other ranks that are as late, or that the point lets pass.
        """
        beyond = self._typical_waits() - self.least_ns
        held = np.where(2 * beyond >= late_ns, beyond, np.iinfo(np.int64).max).min(axis=0)
        at_most: npt.NDArray[np.float64] = np.minimum(held, late_ns)
        return at_most

    def _typical_waits(self) -> Ints:
        return np.stack(list(self.typical_ns.values()))


def wait_at(point: str, block: StepBlock) -> npt.NDArray[np.float64]:
    """Wait at a point per step, nanoseconds; NaN where it is not known."""
    name = FACT.get(point)
    if name is None:
        return block.host_ns(phase_of(point))
    values = block.fact(name)
    return np.full(len(block), np.nan) if values is None else values


def _whole(values: npt.NDArray[np.float64]) -> Ints:
    return np.rint(values).astype(np.int64)
