"""Stretches: where in a packed part every 1,024 steps are, and from when to when they lasted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from trainperf.core.phases import DISQUALIFYING, TAGS
from trainperf.core.steps.block import Column, StepBlock


STRETCH = 1024
"""Steps; a stretch begins at a multiple of it, on every rank."""

NAMES = ("first", "last", "steps", "steady", "start_ns", "end_ns", "offset", "bytes")
"""The columns of stretches; those that a release of November 2026 wrote after them are not read."""


@dataclass(frozen=True, slots=True)
class Stretches:
    """Some stretches of one rank, in order; a row each."""

    matrix: Column

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, name: str) -> Column:
        return self.matrix[:, NAMES.index(name)]

    def select(self, chosen: npt.NDArray[np.bool_]) -> "Stretches":
        """Those for which *chosen* is true."""
        return Stretches(self.matrix[chosen])

    @classmethod
    def joined(cls, parts: "Sequence[Stretches]") -> "Stretches":
        """Those of several, in order."""
        return cls(np.concatenate([np.empty((0, len(NAMES))), *(part.matrix for part in parts)]))

    @classmethod
    def of(cls, blocks: Iterable[StepBlock]) -> "Stretches":
        """One per block; where its columns are is not known yet."""
        rows = [
            [
                block.index[0],
                block.index[-1],
                len(block),
                len(block.steady()),
                block.start_ns[0],
                (block.start_ns + block.wall_ns).max(),
                0.0,
                0.0,
            ]
            for block in blocks
        ]
        return cls(np.array(rows).reshape(-1, len(NAMES)))


def cut(block: StepBlock) -> list[StepBlock]:
    """A block in pieces that are each of one stretch."""
    number = block.index // STRETCH
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(block)]
    return [block.take(np.arange(begin, end)) for begin, end in pairwise(edges)]


def excluded(tags: npt.NDArray[np.int64]) -> dict[str, int]:
    """Tag to the steps excluded from steady statistics for it, the first of several."""
    counts: dict[str, int] = {}
    remaining = tags & DISQUALIFYING
    for tag in TAGS:
        tagged = (remaining & tag) != 0
        if tagged.any():
            counts[tag.label] = int(tagged.sum())
            remaining = np.where(tagged, 0, remaining)
    return counts
