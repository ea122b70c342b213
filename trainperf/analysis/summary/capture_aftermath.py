"""Steps before and after a capture, compared: whether the run stayed slower."""

from collections import deque
from itertools import islice

import numpy as np

from trainperf.analysis.summary.schema import CaptureAftermath
from trainperf.core.phases import DISQUALIFYING, Tag
from trainperf.core.steps.block import Column, StepBlock


NEIGHBOURS = 50
"""Steady steps compared on either side."""

FEWEST = 5
"""Fewest steps on a side that have quartiles."""

SLOWER = 1.05
"""Ratio from which it counts, if the quartiles agree (10–20 % were measured after CUPTI)."""


class CaptureFold:
    """Collects the neighbours of every stretch of profiled steps, in constant memory each."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=NEIGHBOURS)
        self._stretches: list[_Stretch] = []

    def observe(self, block: StepBlock, walls_s: Column) -> None:
        """Take the next block, with the wall time of each step."""
        profiled = (block.tags & Tag.PROFILED) != 0
        steady = (block.tags & DISQUALIFYING) == 0
        if not profiled.any():
            self._neighbours(walls_s[steady])
            return
        edges = np.flatnonzero(np.diff(profiled)) + 1
        for part in np.split(np.arange(len(block)), edges):
            if profiled[part[0]]:
                self._profiled(block.index[part])
            else:
                self._neighbours(walls_s[part][steady[part]])

    def captures(self) -> tuple[CaptureAftermath, ...]:
        """The captures seen so far."""
        return tuple(stretch.capture() for stretch in self._stretches)

    def _profiled(self, index: Column) -> None:
        first, last = int(index[0]), int(index[-1])
        latest = self._stretches[-1] if self._stretches else None
        if latest and not latest.after and latest.last == first - 1:
            latest.last = last
            return
        self._stretches.append(_Stretch(first, last, list(self._recent)))

    def _neighbours(self, walls_s: Column) -> None:
        if self._stretches:
            after = self._stretches[-1].after
            after.extend(islice(walls_s.tolist(), max(0, NEIGHBOURS - len(after))))
        self._recent.extend(walls_s[-NEIGHBOURS:].tolist())


class _Stretch:
    """A stretch of profiled steps whose neighbours are still being collected."""

    def __init__(self, first: int, last: int, before: list[float]) -> None:
        self.first = first
        self.last = last
        self.before = before
        self.after: list[float] = []

    def capture(self) -> CaptureAftermath:
        """The result so far."""
        before_s = after_s = ratio = None
        slower = False
        if min(len(self.before), len(self.after)) >= FEWEST:
            before_s, before_third_s = np.quantile(self.before, (0.5, 0.75)).tolist()
            after_first_s, after_s = np.quantile(self.after, (0.25, 0.5)).tolist()
            ratio = after_s / before_s if before_s and after_s else None
            slower = bool(ratio and ratio > SLOWER and after_first_s > before_third_s)
        return CaptureAftermath(
            first_step=self.first,
            last_step=self.last,
            before_s=before_s,
            after_s=after_s,
            ratio=ratio,
            slower=slower,
        )
