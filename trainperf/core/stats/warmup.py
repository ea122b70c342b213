"""End of the warm-up: decided once, causally, from the steps seen so far."""

from collections import deque
from statistics import median

from trainperf.core.phases import DISQUALIFYING, Tag


WINDOW = 6
"""Steps in each of the two neighbouring windows that are compared."""

TOLERANCE = 0.10
"""Relative difference of their medians below which the step time counts as settled."""


class WarmupDetector:
    """Decides for each step in turn whether the warm-up was *seen* to end before it.

    It has ended when the medians of two neighbouring windows of ordinary steps agree to 10 %.
    The steps needed to see it are warm-up too, so at least twelve steps always are; a run whose
    step time keeps drifting has no steady state, and the detector never says otherwise.
    """

    def __init__(self) -> None:
        self._walls: deque[int] = deque(maxlen=2 * WINDOW)
        self.ended = False

    def is_warmup(self, wall_ns: int, tags: int) -> bool:
        """Take the next step's wall time and its other tags; true while it is warm-up."""
        if self.ended:
            return False
        if tags & DISQUALIFYING & ~Tag.WARMUP == 0:
            self._walls.append(wall_ns)
            walls = list(self._walls)
            before, after = median(walls[:WINDOW]), median(walls[-WINDOW:])
            agree = abs(after - before) <= TOLERANCE * before
            self.ended = agree and len(walls) == 2 * WINDOW
        return True
