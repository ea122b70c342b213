"""Steps of the lowest rank that are kept one by one: the latest, and those about captures."""

import numpy as np

from trainperf.core.phases import DISQUALIFYING, PHASES, Tag
from trainperf.core.steps.block import Column, StepBlock


MOST_STEPS = 65_536
"""The latest ones are kept, up to twice as many."""

NEIGHBOURS = 200
"""Steps on either side of a profiled one that are kept."""

INDEX, TAGS, SLOWEST, TAIL, HOST = range(5)
"""Columns: number and tags of a step, its wall time on the slowest rank and its all-reduce tail,
and from the last on the time of each phase; all times in seconds."""


class LeadSteps:
    """Takes the steps of a run, in order."""

    def __init__(self) -> None:
        self._rows = [np.empty((0, HOST + len(PHASES)))]

    def observe(self, block: StepBlock, slowest_ns: Column) -> None:
        """Take the next steps, with the wall time of each on the slowest rank."""
        single = block.single()
        if len(single) < len(block):
            # Of an imported log those that show no mean, on the rank that it is of.
            block, slowest_ns = single, single.wall_ns
        tails = block.fact("tail_ns")
        missing = np.full(len(block), np.nan)
        host_ns = [block.host_ns(phase) for phase in PHASES]
        times_ns = [slowest_ns, missing if tails is None else tails, *host_ns]
        rows = np.column_stack([block.index, block.tags, *times_ns])
        rows[:, SLOWEST:] /= 1e9
        self._rows.append(rows)
        if sum(map(len, self._rows)) >= 2 * MOST_STEPS:
            self._rows = [_needed(np.concatenate(self._rows))]

    def rows(self) -> Column:
        """All that are kept."""
        return np.concatenate(self._rows)

    def latest(self, without: int) -> Column:
        """The latest ones that have none of these tags."""
        rows = self.rows()[-MOST_STEPS:]
        chosen: Column = rows[~tagged(rows, without)]
        return chosen

    def steady(self) -> frozenset[int]:
        """Numbers of the steady steps among the latest ones."""
        return frozenset(self.latest(DISQUALIFYING)[:, INDEX].astype(int).tolist())


def tagged(rows: Column, tags: int) -> Column:
    """Which of these steps have one of the tags."""
    which: Column = (rows[:, TAGS].astype(int) & tags) != 0
    return which


def _needed(rows: Column) -> Column:
    profiled = np.append(0, np.cumsum(tagged(rows, Tag.PROFILED)))
    place = np.arange(len(rows))
    first, last = (place - NEIGHBOURS).clip(0), (place + NEIGHBOURS + 1).clip(None, len(rows))
    return rows[(profiled[last] > profiled[first]) | (place >= len(rows) - MOST_STEPS)]
