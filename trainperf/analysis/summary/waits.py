"""Waits of ranks for each other: at which points of a step, and how long, step by step."""

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


COLLECTIVES = "collectives"
"""Their name in a run's configuration."""


FACT = {"backward": "tail_ns"}
"""Point to the fact that is the wait there; at any other it is the time of the phase itself."""


NO_TAIL = "backward without a tail"
"""The point in backward of a strategy whose tail is not covered: the wait is the whole phase."""


Ints = npt.NDArray[np.int64]


Numbers = npt.NDArray[np.float64]


def sync_points(
    *, loop_waits: bool, collectives: object = None, tail: bool = True
) -> tuple[str, ...]:
    """The points at which ranks may wait for each other.

    Args:
        loop_waits: Whether the framework makes the ranks wait for each other before a fetch.
        collectives: What was counted of them by phase, as it stands in the run's configuration;
            unknown where it is no text.
        tail: Whether the all-reduce tail is measured.
    """
    always = ("backward",) * tail + ("loop",) * loop_waits
    parts = collectives.split(",") if isinstance(collectives, str) else []
    counted = dict(pair for pair in map(str.split, parts) if len(pair) == 2)  # not `none`
    # At least every other step has one.
    more = (
        NO_TAIL if phase is Phase.BACKWARD else phase.label
        for phase in PHASES
        if 2 * float(counted.get(phase.label, 0)) >= 1 and phase.label not in always
    )
    return (*always, *more)


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


def wait_at(point: str, block: StepBlock) -> Numbers:
    """Wait at a point per step, nanoseconds; NaN where it is not known."""
    if point not in FACT:
        return block.host_ns(phase_of(point))
    values = block.fact(FACT[point])
    return np.full(len(block), np.nan) if values is None else values


def phase_of(point: str) -> Phase:
    """The phase in which the ranks wait at a point."""
    return Phase.BACKWARD if point == NO_TAIL else Phase[point.upper()]


@dataclass(slots=True, kw_only=True)
class Waits:
    """Waits of some ranks at one point in the same steps: partial results that merge exactly.

    All are whole nanoseconds, so the order of merging does not matter.  E.g. in one step ranks 0,
    1, 2, 3 wait 9, 1, 8, 9 ms.  Merged in any order, the least is 1 ms and rank 1's, the largest
    9 ms.  The typical other rank waits 9 ms, the median of 9, 8, 9: rank 1 is 8 ms late.
    """

    least_ns: Ints
    last: Ints
    """Place of the rank that waits least: it comes last.  The lowest of several."""
    most_ns: Ints
    typical_ns: dict[int, Ints] = field(default_factory=dict)
    """Place to the waits of a rank that stands for the typical one."""
    sums_ns: dict[int, Ints] = field(default_factory=dict)
    """Place to the sums of a rank: its wait, and its phases without the all-reduce tail."""
    accumulates: bool = False
    """Whether a step has several micro-batches."""
    synchronous: bool = True
    """Whether the device works in step with the host."""

    @classmethod
    def of(cls, point: str, place: int, block: StepBlock, typical: Collection[int]) -> "Waits":
        """Of one rank, in steps in which its wait is known."""
        wait_ns = np.rint(wait_at(point, block)).astype(np.int64)
        phases_ns = [int(block.host_ns(phase).sum()) for phase in PHASES]
        tail_ns = block.fact(FACT["backward"])
        if tail_ns is not None and block.schema.synchronous:
            # What a rank waits for in backward is no work of its own.
            phases_ns[Phase.BACKWARD] -= round(np.nansum(tail_ns))
        return cls(
            least_ns=wait_ns,
            last=np.full(len(wait_ns), place),
            most_ns=wait_ns,
            typical_ns={place: wait_ns} if place in typical else {},
            sums_ns={place: np.array([wait_ns.sum(), *phases_ns], np.int64)},
            accumulates=bool((block.micro_batches > 1).any()),
            synchronous=block.schema.synchronous,
        )

    def __len__(self) -> int:
        return len(self.least_ns)

    def merge(self, other: "Waits") -> "Waits":
        """With those of other ranks in the same steps."""
        same = other.least_ns == self.least_ns
        theirs = (other.least_ns < self.least_ns) | (same & (other.last < self.last))
        return Waits(
            least_ns=np.minimum(self.least_ns, other.least_ns),
            last=np.where(theirs, other.last, self.last),
            most_ns=np.maximum(self.most_ns, other.most_ns),
            typical_ns=self.typical_ns | other.typical_ns,
            sums_ns=self.sums_ns | other.sums_ns,
            accumulates=self.accumulates or other.accumulates,
            synchronous=self.synchronous and other.synchronous,
        )

    @classmethod
    def joined(cls, parts: "Sequence[Waits]") -> "Waits":
        """Of the same ranks in several sets of steps, in order."""
        first = parts[0]
        return cls(
            least_ns=np.concatenate([part.least_ns for part in parts]),
            last=np.concatenate([part.last for part in parts]),
            most_ns=np.concatenate([part.most_ns for part in parts]),
            typical_ns={
                place: np.concatenate([part.typical_ns[place] for part in parts])
                for place in first.typical_ns
            },
            sums_ns={
                place: np.sum([part.sums_ns[place] for part in parts], axis=0)
                for place in first.sums_ns
            },
            accumulates=any(part.accumulates for part in parts),
            synchronous=first.synchronous,
        )

    def late_ns(self) -> Numbers:
        """By how much the last rank comes after the typical other one, per step."""
        places, waits = list(self.typical_ns), self._typical_waits()
        # Where the last rank is among them it has the least wait of them, and is no *other* one.
        own = self.last == np.array(places)[:, None]
        ordered = np.sort(np.where(own, np.iinfo(np.int64).max, waits), axis=0)
        others, steps = len(places) - own.any(axis=0), np.arange(len(self))
        middle = ordered[(others - 1) // 2, steps] + ordered[others // 2, steps]
        late: Numbers = middle / 2 - self.least_ns
        return late

    def held_ns(self, late_ns: Numbers) -> Numbers:
        """How much longer than the last rank the first one waits that it held up, per step.

        Not held are other ranks that are as late, or that the point lets pass.
        """
        beyond_ns = self._typical_waits() - self.least_ns
        held = np.where(2 * beyond_ns >= late_ns, beyond_ns, np.iinfo(np.int64).max).min(axis=0)
        at_most: Numbers = np.minimum(held, late_ns)
        return at_most

    def _typical_waits(self) -> Ints:
        return np.stack(list(self.typical_ns.values()))
