"""The same steps of all ranks together: sums and extremes over the ranks, and the blocks of some.

Of a few ranks every rank's block is there.  Of many only those of the ranks that are late most
often or stand for the others: what is known over all of them was merged from one file at a time.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.journal import Journal
from trainperf.core.phases import PHASES
from trainperf.core.steps.block import Column, StepBlock
from trainperf.core.steps.stretches import STRETCH


SUMMED = (
    "data_stall_ns",
    "h2d_device_ns",
    "tail_ns",
    "tokens_effective",
    "tokens_padded",
    "samples",
    "attempts",
    "overflows",
    "loss",
)
"""Facts of which the sum over ranks is known."""

LARGEST = ("allocated_bytes", "reserved_bytes", "peak_bytes", "resident_bytes")
"""Facts of which the largest over ranks is."""

WALL, CYCLE, GAP = "wall_ns", "cycle_ns", "gap_ns"
"""Names of the largest step time, of that of a step with the recurring gaps after it, and of the
largest gaps; the last two are known of many ranks only."""

PIECE_STEPS = STRETCH
"""Of a block of many ranks, some thirty of which are in memory."""


@dataclass(slots=True, kw_only=True)
class OverRanks:
    """Per step, over some ranks.  Merged in the order of ranks, as floats are summed."""

    ranks: int
    sums: dict[str, Column]
    """Phase or fact to its sum over the ranks that have it."""
    having: dict[str, Column]
    """Fact to the number of those ranks."""
    largest: dict[str, Column]
    """NaN where no rank has it."""
    least_tail_ns: Column
    """NaN where some rank has none."""

    @classmethod
    def of(cls, block: StepBlock, gaps_ns: Column | None = None) -> "OverRanks":
        """Of one rank; *gaps_ns* are those after each step."""
        facts = {name: fact(block, name) for name in SUMMED}
        finite = {name: np.isfinite(values) for name, values in facts.items()}
        largest = {WALL: block.wall_ns, **{name: fact(block, name) for name in LARGEST}}
        if gaps_ns is not None:
            largest |= {CYCLE: block.wall_ns + gaps_ns, GAP: gaps_ns}
        return cls(
            ranks=1,
            sums={
                **{phase.label: block.host_ns(phase) for phase in PHASES},
                **{name: np.where(finite[name], facts[name], 0.0) for name in SUMMED},
            },
            having={name: there.astype(np.float64) for name, there in finite.items()},
            largest=largest,
            least_tail_ns=facts["tail_ns"],
        )

    def plus(self, other: "OverRanks") -> "OverRanks":
        """With those of further ranks, in the same steps."""
        return OverRanks(
            ranks=self.ranks + other.ranks,
            sums={name: mine + other.sums[name] for name, mine in self.sums.items()},
            having={name: mine + other.having[name] for name, mine in self.having.items()},
            largest={
                name: np.fmax(mine, other.largest[name]) for name, mine in self.largest.items()
            },
            least_tail_ns=np.minimum(self.least_tail_ns, other.least_tail_ns),
        )

    def total(self, name: str) -> Column:
        """Sum of a phase or fact over the ranks; NaN where one has not measured it."""
        having = self.having.get(name, self.ranks)  # every rank has its phases
        return np.where(having == self.ranks, self.sums[name], np.nan)

    def take(self, places: npt.NDArray[np.intp]) -> "OverRanks":
        """The steps at these places."""
        return OverRanks(
            ranks=self.ranks,
            sums={name: values[places] for name, values in self.sums.items()},
            having={name: values[places] for name, values in self.having.items()},
            largest={name: values[places] for name, values in self.largest.items()},
            least_tail_ns=self.least_tail_ns[places],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBlock:
    """Some steps of all ranks that took part in them."""

    blocks: Mapping[int, StepBlock]
    """Place of a rank to its steps, in the order of ranks."""
    over: OverRanks
    everybody: bool
    """Whether all ranks of the run took part."""
    typical: Collection[int] | None = None
    """Places of the ranks that stand for all of them; `None` for every one."""

    @classmethod
    def of(cls, blocks: Sequence[StepBlock]) -> "JobBlock":
        """Of one block per rank, empty for one that took no part."""
        present = {place: block for place, block in enumerate(blocks) if len(block)}
        over = reduce(OverRanks.plus, map(OverRanks.of, present.values()))
        return cls(blocks=present, over=over, everybody=len(present) == len(blocks))

    @property
    def first(self) -> StepBlock:
        """Of the lowest rank that took part: steps have the same numbers and tags on all."""
        return next(iter(self.blocks.values()))

    def of_typical(self) -> list[StepBlock]:
        """The blocks of the ranks that stand for all."""
        return [
            block
            for place, block in self.blocks.items()
            if self.typical is None or place in self.typical
        ]

    def mean_of_those_having(self, name: str) -> Column:
        """Mean of a fact over the ranks that have a value; NaN where none has."""
        having = self.over.having[name]
        return np.where(having > 0, self.over.sums[name] / np.maximum(having, 1), np.nan)

    def select(self, chosen: npt.NDArray[np.bool_]) -> "JobBlock":
        """The steps for which *chosen* is true."""
        return JobBlock(
            blocks={place: block.select(chosen) for place, block in self.blocks.items()},
            over=self.over.take(np.flatnonzero(chosen)),
            everybody=self.everybody,
            typical=self.typical,
        )


def gaps_after(index: Column, journal: Journal) -> Column:
    """Nanoseconds of recurring gaps after each of a rank's steps, whose file was read."""
    after = journal.gaps_after
    return np.array([after.get(step, 0) for step in index.astype(int).tolist()], dtype=np.float64)


def fact(block: StepBlock, name: str) -> Column:
    """A fact per step, NaN where it is missing."""
    values = block.fact(name)
    return np.full(len(block), np.nan) if values is None else values
