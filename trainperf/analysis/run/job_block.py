"""The same steps of all ranks together: sums and extremes over the ranks, step by step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainperf.core.arrays import Column
from trainperf.core.phases import PHASES
from trainperf.core.steps.block import StepBlock


FEW_RANKS = 16
"""Up to so many ranks are read `BLOCK_STEPS` at a time, of more ranks fewer steps; and each of them
is shown by itself."""

_PHASES = {phase.label: phase for phase in PHASES}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBlock:
    """Some steps of all ranks that took part in them."""

    blocks: Mapping[int, StepBlock]
    """Place of a rank to its steps, in the order of ranks."""
    everybody: bool
    """Whether all ranks of the run took part."""

    @classmethod
    def of(cls, blocks: Sequence[StepBlock]) -> "JobBlock":
        """Of one block per rank, empty for one that took no part."""
        present = {place: block for place, block in enumerate(blocks) if len(block)}
        return cls(blocks=present, everybody=len(present) == len(blocks))

    @property
    def first(self) -> StepBlock:
        """Of the lowest rank that took part: steps have the same numbers and tags on all."""
        return next(iter(self.blocks.values()))

    def largest(self, name: str) -> Column:
        """Largest value of a fact over the ranks; NaN where none has it."""
        return np.asarray(np.fmax.reduce(self.each(name)))

    def total(self, name: str) -> Column:
        """Sum of a phase or fact over the ranks; NaN where one has not measured it."""
        return sum(self.each(name), np.zeros(len(self.first)))

    def mean_of_those_having(self, name: str) -> Column:
        """Mean of a fact over the ranks that have a finite value; NaN where none has."""
        values = np.stack(self.each(name))
        finite = np.isfinite(values)
        having = finite.sum(axis=0)
        sums = np.where(finite, values, 0.0).sum(axis=0)
        return np.where(having > 0, sums / np.maximum(having, 1), np.nan)

    def each(self, name: str) -> list[Column]:
        """A phase or fact of each rank."""
        phase = _PHASES.get(name)
        every = self.blocks.values()
        if phase is not None:
            return [block.host_ns(phase) for block in every]
        return [block.values(name) for block in every]

    def select(self, chosen: npt.NDArray[np.bool_]) -> "JobBlock":
        """The steps for which *chosen* is true."""
        selected = {place: block.select(chosen) for place, block in self.blocks.items()}
        return JobBlock(blocks=selected, everybody=self.everybody)
