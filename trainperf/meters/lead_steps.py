"""Steps of the lowest rank kept one by one: the latest, and those of captures and audits."""

import numpy as np
import numpy.typing as npt

from trainperf.core.arrays import Column
from trainperf.core.phases import PHASES, Tag
from trainperf.core.steps.block import StepBlock


MOST_STEPS = 65_536
"""The latest ones are kept, up to twice as many."""

INDEX, TAGS, TOKENS, SAMPLES, HOST = range(5)
"""Columns: number, tags and sizes of a step (tokens with padding), and from the last on the seconds
of each phase."""


class LeadSteps:
    """Takes the steps of a run, in order."""

    def __init__(self) -> None:
        self._kept = np.empty((0, HOST + len(PHASES)))
        self._recent: list[Column] = []

    def observe(self, steps: StepBlock) -> None:
        """Take the next steps; of an imported log those that show no mean."""
        block = steps.single()
        sizes = [block.index, block.tags, *map(block.values, ("tokens_padded", "samples"))]
        host_s = [block.host_ns(phase) / 1e9 for phase in PHASES]
        self._recent.append(np.column_stack([*sizes, *host_s]))
        if sum(map(len, self._recent)) >= MOST_STEPS:
            rows, looked_at = self.rows(), Tag.PROFILED | Tag.AUDITED
            latest = np.arange(len(rows)) >= len(rows) - MOST_STEPS
            self._kept, self._recent = rows[latest | tagged(rows, looked_at)], []

    def rows(self) -> Column:
        """All that are kept."""
        return np.concatenate([self._kept, *self._recent])

    def latest(self, without: int) -> Column:
        """The latest ones that have none of these tags."""
        rows = self.rows()[-MOST_STEPS:]
        return rows[~tagged(rows, without)]

    def numbers(self, without: int = 0) -> frozenset[int]:
        """Numbers of the latest ones that have none of these tags."""
        return frozenset(self.latest(without)[:, INDEX].astype(int).tolist())


def tagged(rows: Column, tags: int) -> npt.NDArray[np.bool_]:
    """Which of these steps have one of the tags."""
    return np.asarray((rows[:, TAGS].astype(int) & tags) != 0)
