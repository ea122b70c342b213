"""Timeline of who was late at a synchronisation point: counts in at most 64 windows of a run.

Steps are counted in windows of equal length.  When there are too many, neighbours are joined, so a
run of any length takes as much memory, and no window begins inside another.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice, pairwise

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from trainperf.analysis.summary.ranks import LateWindow


MOST_WINDOWS = 64
"""Even, so that neighbours can be joined in pairs."""

MOST_RANKS = 8
"""Ranks of which each window says how often they were late: those that were it most often."""

_BATCHES = 10
"""Of windows; fewer than twice as many windows support no interval."""

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Window:
    first_step: int
    last_step: int
    steps: int = 0
    late: Counter[int] = field(default_factory=Counter)
    lost_ns: int = 0
    left_ns: float = 0.0

    def join(self, later: "_Window") -> None:
        self.last_step = later.last_step
        self.steps += later.steps
        self.late.update(later.late)
        self.lost_ns += later.lost_ns
        self.left_ns += later.left_ns


class LateWindows:
    """Fed with the judged steps of a point in their order."""

    def __init__(self) -> None:
        self._width = 1
        self._windows: list[_Window] = []

    def add(
        self,
        index: Ints,
        last: Ints,
        late: npt.NDArray[np.bool_],
        lost_ns: Ints,
        left_ns: npt.NDArray[np.float64],
    ) -> None:
        """Take steps.

        Args:
            index: Numbers of the steps, rising.
            last: Place of the rank that came last, by step.
            late: Whether it was clearly late.
            lost_ns: What the rank that came first waited for it.
            left_ns: What the step would have taken without that rank's delay.
        """
        begin = 0
        while begin < len(index):
            window = self._open(int(index[begin]))
            end = min(len(index), begin + self._width - window.steps)
            taken = slice(begin, end)
            window.last_step = int(index[end - 1])
            window.steps += end - begin
            window.late.update(last[taken][late[taken]].tolist())
            window.lost_ns += int(lost_ns[taken].sum())
            window.left_ns += float(left_ns[taken].sum())
            begin = end

    def _open(self, first_step: int) -> _Window:
        """The window that takes the next step."""
        if self._windows and self._windows[-1].steps < self._width:
            return self._windows[-1]
        if len(self._windows) == MOST_WINDOWS:
            self._halve()
        self._windows.append(_Window(first_step, first_step))
        return self._windows[-1]

    def _halve(self) -> None:
        pairs = zip(self._windows[::2], self._windows[1::2], strict=True)
        self._windows = []
        for window, later in pairs:
            window.join(later)
            self._windows.append(window)
        self._width *= 2

    def often(self) -> tuple[int, ...]:
        """Places of the ranks that were late most often, the most frequent first."""
        total = sum((window.late for window in self._windows), Counter[int]())
        ordered = sorted(total, key=lambda place: (-total[place], place))
        return tuple(islice(ordered, MOST_RANKS))

    def margin_s(self) -> float | None:
        """95 % half-width of the mean of what is left of a step; `None` with too few windows.

        Of batches of windows that follow each other: steps next to each other are alike, and so is
        the machine's speed.  E.g. of ten batches with a standard deviation of 1 ms: 2.26 / √10 ms.
        """
        number = len(self._windows)
        if number < 2 * _BATCHES:
            return None
        ends = [number * batch // _BATCHES for batch in range(_BATCHES + 1)]
        batches = [self._windows[begin:end] for begin, end in pairwise(ends)]
        means_s = [
            sum(window.left_ns for window in batch) / sum(window.steps for window in batch) / 1e9
            for batch in batches
        ]
        spread_s = float(np.std(means_s, ddof=1))
        return float(stdtrit(_BATCHES - 1, 0.975)) * spread_s / math.sqrt(_BATCHES)

    def windows(self) -> tuple[LateWindow, ...]:
        """The windows in their order; their counts are those of the ranks in `often`."""
        often = self.often()
        return tuple(
            LateWindow(
                first_step=window.first_step,
                last_step=window.last_step,
                steps=window.steps,
                late_steps=window.late.total(),
                of_ranks=tuple(window.late[place] for place in often),
                lost_s=window.lost_ns / 1e9,
            )
            for window in self._windows
        )
