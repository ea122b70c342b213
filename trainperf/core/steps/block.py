"""Many steps as columns: what meters observe, live and offline alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trainperf.core.arrays import Column
from trainperf.core.phases import DISQUALIFYING, TAGS, Phase
from trainperf.core.stats.quantiles import Distribution
from trainperf.core.steps.records import CORE_COLUMNS, FIRST_FACT, FIRST_PHASE, Row


BLOCK_STEPS = 4096
"""The most steps one block holds: large enough for numpy, small enough for memory."""


MEAN_OF = "mean_of_steps"
"""Fact that marks the steps of an imported log that show a mean."""


@dataclass(frozen=True, slots=True)
class StepSchema:
    """How to read a row: which facts follow the core columns, and on what device they arose."""

    columns: tuple[str, ...] = ()
    device: str = "cpu"

    @property
    def synchronous(self) -> bool:
        """Whether the device works in step with the host, as a CPU does."""
        return self.device == "cpu"


class StepBlock:
    """Up to 4,096 steps as columns: what meters observe.

    Inside a block a missing fact is NaN; `fact` and `having` are how it is kept from a statistic.
    """

    def __init__(self, schema: StepSchema, cells: Column) -> None:
        self.schema = schema
        self.cells = cells
        """Core columns and facts as a matrix, one row per step: not to be changed."""
        self._parts: dict[tuple[str, ...], StepBlock] = {}
        self.index: Column = cells[:, 0]
        """Step numbers."""
        self.start_ns: Column = cells[:, 1]
        """Start of each step, nanoseconds from the start of the fit."""
        self.micro_batches: Column = cells[:, 3]
        """Forward-backward passes per step."""

    @classmethod
    def from_rows(cls, schema: StepSchema, rows: Sequence[Row]) -> "StepBlock":
        """Build from rows of core columns and facts; `None` is a missing value."""
        width = FIRST_FACT + len(schema.columns)
        return cls(schema, np.array(rows, dtype=np.float64).reshape(-1, width))

    @classmethod
    def joined(cls, blocks: "Sequence[StepBlock]") -> "StepBlock":
        """The steps of several blocks of one schema as one block."""
        return cls(blocks[0].schema, np.concatenate([block.cells for block in blocks]))

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def tags(self) -> npt.NDArray[np.int64]:
        """Bits of `Tag` per step."""
        return self.cells[:, 2].astype(np.int64)

    @cached_property
    def wall_ns(self) -> Column:
        """Host time per step in whole nanoseconds (exact: a sum of integers below 2**53)."""
        return np.asarray(self.cells[:, FIRST_PHASE:FIRST_FACT].sum(axis=1))

    @cached_property
    def walls(self) -> Distribution | None:
        """Distribution of wall times in seconds: several meters read it, so it is made once."""
        return Distribution.of(self.wall_ns / 1e9)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.schema.columns)}

    @cached_property
    def _sums(self) -> list[float]:
        return list(self.cells.sum(axis=0).tolist())

    @cached_property
    def _missing(self) -> list[int]:
        return list(np.isnan(self.cells[:, FIRST_FACT:]).sum(axis=0).tolist())

    def host_ns(self, phase: Phase) -> Column:
        """Host time per step in one phase, in whole nanoseconds."""
        return self.cells[:, FIRST_PHASE + phase]

    @cached_property
    def total_wall_ns(self) -> float:
        """Sum of `wall_ns`."""
        return sum(self._sums[FIRST_PHASE:FIRST_FACT])

    def total_ns(self, phase: Phase) -> float:
        """Sum of `host_ns` of a phase."""
        return self._sums[FIRST_PHASE + phase]

    def fact(self, name: str) -> Column | None:
        """Values of a fact, NaN where missing; `None` when no step in the block has it."""
        place = self._places.get(name)
        if place is None or self._missing[place] == len(self):
            return None
        return self.cells[:, FIRST_FACT + place]

    def values(self, name: str) -> Column:
        """Values of a fact, NaN where missing."""
        values = self.fact(name)
        return np.full(len(self), np.nan) if values is None else values

    def total(self, name: str) -> float:
        """Sum of a fact that every step has: ask a block that came from `having`."""
        return self._sums[FIRST_FACT + self._places[name]]

    def having(self, *names: str) -> "StepBlock | None":
        """The steps that have every one of these facts; `None` when there is none."""
        places = [self._places.get(name) for name in names]
        missing = [len(self) if place is None else self._missing[place] for place in places]
        if not len(self) or max(missing) == len(self):
            return None
        if max(missing) == 0:
            return self
        part = self._parts.get(names)
        if part is None:
            columns = [FIRST_FACT + place for place in places if place is not None]
            complete = np.logical_not(np.isnan(self.cells[:, columns]).any(axis=1))
            part = self._parts[names] = self.select(complete)
        return part if len(part) else None

    def select(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice) -> "StepBlock":
        """The steps for which *chosen* is true, or those at its places, also repeatedly."""
        return StepBlock(self.schema, self.cells[chosen])

    def steady(self) -> "StepBlock":
        """The steps without a disqualifying tag."""
        usual = (self.tags & DISQUALIFYING) == 0
        return self if usual.all() else self.select(usual)

    def means(self) -> "StepBlock":
        """Each time once: of an imported log's steps that show one mean, the first."""
        mean_of = self.fact(MEAN_OF)
        return self if mean_of is None or mean_of.all() else self.select(mean_of > 0)

    def excluded(self) -> dict[str, int]:
        """Tag to the steps excluded from steady statistics for it, the first of several."""
        disqualifying = self.tags & DISQUALIFYING
        first = disqualifying & -disqualifying  # the lowest bit
        counts = {tag.label: int((first == tag).sum()) for tag in TAGS}
        return {label: number for label, number in counts.items() if number}

    def single(self) -> "StepBlock":
        """The steps that have a time of their own: in an imported log others show a mean."""
        mean_of = self.fact(MEAN_OF)
        return self if mean_of is None else self.select(mean_of == 1)

    def replaced(self, column: str, values: npt.NDArray[np.generic]) -> "StepBlock":
        """The same steps with other values of a core column, e.g. tags that all ranks have."""
        cells = self.cells.copy()
        cells[:, CORE_COLUMNS.index(column)] = values
        return StepBlock(self.schema, cells)
