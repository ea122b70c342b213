"""Steps of the lowest rank kept one by one: the latest, and those of captures and audits."""

import numpy as np
import numpy.typing as npt

from trainperf.core.phases import DISQUALIFYING, PHASES, Tag
from trainperf.core.steps.block import Column, StepBlock


MOST_STEPS = 65_536
"""The latest ones are kept, up to twice as many."""

NEIGHBOURS = 50
"""Steps on either side of a profiled or audited one that are kept, and compared."""

INDEX, TAGS, TOKENS, SAMPLES, SLOWEST, TAIL, HOST = range(7)
"""Columns: number, tags and sizes of a step (tokens with padding), its wall time on the slowest
rank, its all-reduce tail, and from the last on the time of each phase; all times in seconds."""


class LeadSteps:
    """Takes the steps of a run, in order."""

    def __init__(self) -> None:
        self._kept = np.empty((0, HOST + len(PHASES)))
        self._recent: list[Column] = []

    def observe(self, block: StepBlock, slowest_ns: Column) -> None:
        """Take the next steps, with the wall time of each on the slowest rank."""
        single = block.single()
        if len(single) < len(block):
            # Of an imported log those that show no mean, on the rank that it is of.
            block, slowest_ns = single, single.wall_ns
        missing = np.full(len(block), np.nan)
        facts = (block.fact(name) for name in ("tokens_padded", "samples", "tail_ns"))
        tokens, samples, tails = (missing if fact is None else fact for fact in facts)
        host_ns = [block.host_ns(phase) for phase in PHASES]
        sizes = [block.index, block.tags, tokens, samples]
        rows = np.column_stack([*sizes, slowest_ns, tails, *host_ns])
        rows[:, SLOWEST:] /= 1e9
        self._recent.append(rows)
        if sum(map(len, self._recent)) >= MOST_STEPS:
            self._kept = _needed(self.rows())
            self._recent = []

    def rows(self) -> Column:
        """All that are kept."""
        return np.concatenate([self._kept, *self._recent])

    def latest(self, without: int) -> Column:
        """The latest ones that have none of these tags."""
        rows = self.rows()[-MOST_STEPS:]
        return rows[~tagged(rows, without)]

    def steady(self) -> frozenset[int]:
        """Numbers of the steady steps among the latest ones."""
        return frozenset(self.latest(DISQUALIFYING)[:, INDEX].astype(int).tolist())


def tagged(rows: Column, tags: int) -> npt.NDArray[np.bool_]:
    """Which of these steps have one of the tags."""
    which: npt.NDArray[np.bool_] = (rows[:, TAGS].astype(int) & tags) != 0
    return which


def _needed(rows: Column) -> Column:
    looked_at = np.append(0, np.cumsum(tagged(rows, Tag.PROFILED | Tag.AUDITED)))
    place = np.arange(len(rows))
    first, last = (place - NEIGHBOURS).clip(0), (place + NEIGHBOURS + 1).clip(None, len(rows))
    kept: Column = rows[(looked_at[last] > looked_at[first]) | (place >= len(rows) - MOST_STEPS)]
    return kept
