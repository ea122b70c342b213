"""The same steps of all ranks together: sums and extremes over the ranks, step by step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainperf.core.arrays import Column
from trainperf.core.phases import Phase
from trainperf.core.steps.block import StepBlock


FEW_RANKS = 16
"""Up to so many ranks are read `BLOCK_STEPS` at a time, of more ranks fewer steps; and each of them
is shown by itself."""


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

    def total(self, name: Phase | str) -> Column:
        """Sum of a phase or fact over the ranks; NaN where one has not measured it."""
        return sum(self.each(name), np.zeros(len(self.first)))

    def mean_of_those_having(self, name: str) -> Column:
        """Mean of a fact over the ranks that have a finite value; NaN where none has."""
        finite = np.ma.masked_invalid(np.stack(self.each(name)))
        return np.asarray(finite.mean(axis=0).filled(np.nan))

    def each(self, name: Phase | str) -> list[Column]:
        """A phase or fact of each rank."""
        return [
            block.host_ns(name) if isinstance(name, Phase) else block.values(name)
            for block in self.blocks.values()
        ]

    def select(self, chosen: npt.NDArray[np.bool_]) -> "JobBlock":
        """The steps for which *chosen* is true."""
        selected = {place: block.select(chosen) for place, block in self.blocks.items()}
        return JobBlock(blocks=selected, everybody=self.everybody)
