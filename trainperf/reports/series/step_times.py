"""Distributions of step times: of steady steps, and of those excluded under each tag."""

from collections.abc import Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt

from trainperf.core.phases import DISQUALIFYING, TAGS
from trainperf.core.stats.quantiles import GROWTH, Distribution
from trainperf.core.steps.block import Column, StepBlock


class WallsFold:
    """The slowest rank's step time: of steady steps, and of those left out under each tag.

    A step with several tags is counted once, under the first in the order of `Tag`, as in the
    summary; times are right to 0.1 %.
    """

    def __init__(self) -> None:
        self.steady: Distribution | None = None
        self.left_out: dict[str, Distribution] = {}
        """By the tag's label."""

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps: one block a rank, empty for one that took no part."""
        present = [block for block in blocks if len(block)]
        walls = np.maximum.reduce([block.wall_ns for block in present]) / 1e9
        left = present[0].tags & DISQUALIFYING
        self.steady = _with(self.steady, walls[left == 0])
        for tag in TAGS:
            mine = (left & tag) != 0
            if mine.any():
                walls_of_tag = _with(self.left_out.get(tag.label), walls[mine])
                if walls_of_tag is not None:
                    self.left_out[tag.label] = walls_of_tag
                left = np.where(mine, 0, left)

    def every(self) -> list[Distribution]:
        """All of them that have a step."""
        steady = [] if self.steady is None else [self.steady]
        return [*steady, *self.left_out.values()]


_MARGIN = 3
"""Empty bins at either end at least."""


def pooled(repeats: Sequence[WallsFold]) -> Distribution | None:
    """Steady steps of all repeats of a run."""
    steady = [walls.steady for walls in repeats if walls.steady is not None]
    return reduce(lambda merged, other: merged.merge(other), steady) if steady else None


class Bins:
    """Bins for several distributions that are drawn together, at most *most*.

    Each holds as many of the distributions' own bins as the next: the counts are exact.
    """

    def __init__(self, every: Sequence[Distribution], most: int) -> None:
        # Times of no length have no place on a logarithmic axis.
        filled = [part for part in every if part.counts.any()]
        low = min((part.lowest for part in filled), default=0)
        high = max((part.lowest + len(part.counts) for part in filled), default=1)
        margin = max(_MARGIN, (high - low) // 32)
        low, high = low - margin, high + margin
        self._each = max(1, -(-(high - low) // most))
        self._number = -(-(high - low) // self._each)
        self._low = low
        places = low + self._each * np.arange(self._number + 1)
        self.edges_s: Column = np.exp(places * np.log(GROWTH))

    def counts(self, distribution: Distribution) -> npt.NDArray[np.int64]:
        """Steps in each."""
        counted = np.zeros(self._number * self._each, np.int64)
        start = distribution.lowest - self._low
        if distribution.counts.any():
            counted[start : start + len(distribution.counts)] = distribution.counts
        return np.add.reduceat(counted, np.arange(0, len(counted), self._each))


def _with(before: Distribution | None, walls: Column) -> Distribution | None:
    added = Distribution.of(walls) if len(walls) else None
    if before is None or added is None:
        return before or added
    return before.merge(added)
