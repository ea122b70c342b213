"""How do the steps of a run become groups to draw?  As they pass, in constant memory."""

from collections.abc import Sequence

import numpy as np

from trainperf.core.steps.block import StepBlock
from trainperf.reports.series.columns import columns
from trainperf.reports.series.decimate import MOST_GROUPS, Groups


class SeriesFold:
    """Groups of the steps from *first* to *last*, both included.

    Args:
        lead: Place of the rank whose phases are drawn; the mean over ranks without one.
        first: Number of the first step.
        last: Number of the last one; to the end of the run without one.
        most: Groups at most.
    """

    def __init__(
        self,
        lead: int | None = None,
        *,
        first: int = 0,
        last: int | None = None,
        most: int = MOST_GROUPS,
    ) -> None:
        self.groups = Groups(first, most)
        self._lead = lead
        self._last = last

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps: one block a rank, empty for one that took no part."""
        index = next(block.index for block in blocks if len(block))
        chosen = np.logical_and(
            index >= self.groups.first, True if self._last is None else index <= self._last
        )
        if not chosen.any():
            return
        parts = blocks
        if not chosen.all():
            parts = [block.select(chosen) if len(block) else block for block in blocks]
        self.groups.observe(index[chosen], columns(parts, self._lead))
