"""Who is late, where in the step, and why?

A synchronous step waits at its synchronisation points: in backward for the all-reduce, and, under
Lightning on more than one rank, between the last hook and the next fetch.  At each of them the
rank that arrives last waits least.  The points are judged apart: ranks that are late at different
points cancel in a sum while both delays are lost.

What cannot be seen: work that only one rank does *after* its last hook (rank 0's logging) lengthens
the `loop` phase of every rank alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainperf.blocks import Column, StepBlock
from trainperf.phases import PHASES, Phase
from trainperf.results import SyncPoint
from trainperf.stats.quantiles import Distribution


LEAST_LATE_S = 0.001
"""Healthy ranks differ by up to 0.2 ms (measured, traps 41)."""

LEAST_LATE_FRACTION = 0.05
"""Of the step: below it the delay is not what makes the step slow."""

LEAST_SHARE = 0.80
"""Of the steps in which the same rank must be clearly late; a coin flip gives 1 / ranks."""

LEAST_EXPLAINED = 0.5
"""Of the delay that the largest excess must cover to be called its cause."""

_TAIL = "tail_ns"
_BETWEEN: Mapping[str, tuple[Phase, ...]] = {
    "backward": (Phase.DATA_WAIT, Phase.H2D, Phase.FORWARD, Phase.BACKWARD),
    "loop": (Phase.OPTIMIZER, Phase.OTHER),
}
"""Phases between the previous point and this one.  `callbacks` run on both sides of backward and
are recorded as one phase: at each point they get what the others leave unexplained, as far as the
phase as a whole can account for both points."""

Matrix = npt.NDArray[np.float64]


class LatenessFold:
    """Waits of all ranks at both points, added up over aligned steady steps in constant memory."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = tuple(ranks)
        self._points = {point: _PointFold(point, ranks) for point in _BETWEEN}

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the same steps of every rank."""
        steady = [block.steady() for block in blocks]
        if len(blocks) < 2 or not len(steady[0]):
            return
        for point in self._points.values():
            point.observe(steady)

    def points(self) -> tuple[SyncPoint, ...]:
        """The synchronisation points at which the waits are known, in the order of the step."""
        backward, loop = self._points["backward"], self._points["loop"]
        used_s = np.zeros(len(self._ranks))
        judged = []
        for point in (backward, loop):
            if not point.n:
                continue
            suspect, fastest = point.suspect(), point.fastest()
            available_s = point.excess_s(suspect, fastest)[Phase.CALLBACKS]
            available_s -= used_s[suspect] - used_s[fastest]
            if point is backward and loop.n:
                # The fastest rank's callbacks after backward hide the late one's before it: what
                # it is late at `loop` without another reason is added back.
                available_s -= min(0.0, loop.unexplained_s(suspect, fastest))
            found = point.judged(float(available_s))
            if found.cause == Phase.CALLBACKS.label and found.cause_s is not None:
                used_s[suspect] = found.cause_s
            judged.append(found)
        return tuple(judged)

    def skew(self) -> Distribution | None:
        """Distribution of the largest skew at `backward`."""
        return self._points["backward"].skews


@dataclass(frozen=True, slots=True, kw_only=True)
class _Excess:
    """How much longer the late rank was in one phase than the fastest, mean seconds."""

    phase: Phase
    seconds: float


class _PointFold:
    """One synchronisation point."""

    def __init__(self, point: str, ranks: Sequence[int]) -> None:
        self.point = point
        self.ranks = tuple(ranks)
        self.n = 0
        self.skews: Distribution | None = None
        self._late: list[Distribution | None] = [None] * len(ranks)
        self._late_steps = np.zeros(len(ranks), dtype=np.int64)
        self._waits_s = np.zeros(len(ranks))
        self._least_s = self._lost_s = 0.0
        self._phases_s = np.zeros((len(ranks), len(PHASES)))
        self._synchronous = True

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the same steady steps of every rank."""
        known = self._known(blocks)
        if known is None:
            return
        blocks = [block.select(known) for block in blocks]
        waits = np.stack([_wait_s(self.point, block) for block in blocks])
        least = waits.min(axis=0)
        skew = waits - least
        self._synchronous = blocks[0].schema.synchronous
        self.n += waits.shape[1]
        self._waits_s += waits.sum(axis=1)
        self._least_s += float(least.sum())
        self._lost_s += float(skew.max(axis=0).sum())
        self.skews = _merged(self.skews, Distribution.of(skew.max(axis=0)))
        self._count_late(skew, np.stack([block.wall_ns for block in blocks]).max(axis=0) / 1e9)
        for place, block in enumerate(blocks):
            self._phases_s[place] += [block.host_ns(phase).sum() / 1e9 for phase in PHASES]

    def suspect(self) -> int:
        """Place of the rank that was clearly late most often."""
        return int(self._late_steps.argmax())

    def fastest(self) -> int:
        """Place of the rank that waits longest."""
        return int(self._waits_s.argmax())

    def excess_s(self, late: int, early: int) -> Column:
        """How much longer one rank was than another in each phase, mean seconds."""
        excess: Column = (self._phases_s[late] - self._phases_s[early]) / self.n
        if self.point == "backward" and self._synchronous:
            # There the host itself waits inside backward, and the late rank hardly does.
            excess[Phase.BACKWARD] += self._late_s(late, early)
        return excess

    def unexplained_s(self, late: int, early: int) -> float:
        """How much later one rank arrives than another beyond what its phases explain."""
        explained = self.excess_s(late, early)[list(_BETWEEN[self.point])].sum()
        return self._late_s(late, early) - float(explained)

    def judged(self, callbacks_s: float) -> SyncPoint:
        """The point's figures, and the rank to blame if there is one.

        *callbacks_s* is how much longer the suspect may have been in callbacks before this point.
        """
        suspect = self.suspect()
        late_fraction = float(self._late_steps[suspect] / self.n)
        named = late_fraction >= LEAST_SHARE
        late = self._late[suspect] if named else None
        late_s = late.value() if late else None
        cause = self._cause(suspect, late_s, callbacks_s) if late_s else None
        return SyncPoint(
            point=self.point,
            n=self.n,
            wait_s=tuple((self._waits_s / self.n).tolist()),
            transfer_s=self._least_s / self.n,
            skew_s=self.skews.value() if self.skews else None,
            lost_s=self._lost_s / self.n,
            straggler=self.ranks[suspect] if named else None,
            late_fraction=late_fraction,
            late_s=late_s,
            cause=cause.phase.label if cause else None,
            cause_s=cause.seconds if cause else None,
        )

    def _known(self, blocks: Sequence[StepBlock]) -> npt.NDArray[np.bool_] | None:
        waits = [_wait_s(self.point, block) for block in blocks]
        known: npt.NDArray[np.bool_] = np.logical_and.reduce([~np.isnan(wait) for wait in waits])
        return known if known.any() else None

    def _count_late(self, skew: Matrix, wall_s: Column) -> None:
        """A rank is late by what the *typical* other rank waits: one early rank is no fault."""
        last = skew.argmin(axis=0)
        enough = np.maximum(LEAST_LATE_S, LEAST_LATE_FRACTION * wall_s)
        for place in range(len(self.ranks)):
            mine = last == place
            late_s = np.median(np.delete(skew[:, mine], place, axis=0), axis=0)
            clearly = late_s >= enough[mine]
            self._late_steps[place] += int(clearly.sum())
            self._late[place] = _merged(self._late[place], Distribution.of(late_s[clearly]))

    def _late_s(self, late: int, early: int) -> float:
        return float(self._waits_s[early] - self._waits_s[late]) / self.n

    def _cause(self, suspect: int, late_s: float, callbacks_s: float) -> _Excess | None:
        """The phase between the points in which the suspect lost most against the fastest rank."""
        fastest = self.fastest()
        excess = self.excess_s(suspect, fastest)
        rest = min(callbacks_s, self.unexplained_s(suspect, fastest))
        found = [_Excess(phase=p, seconds=float(excess[p])) for p in _BETWEEN[self.point]]
        found.append(_Excess(phase=Phase.CALLBACKS, seconds=rest))
        largest = max(found, key=lambda one: one.seconds)
        return largest if largest.seconds >= LEAST_EXPLAINED * late_s else None


def _wait_s(point: str, block: StepBlock) -> Column:
    """Wait at a point per step; NaN where it is not known."""
    if point == "loop":
        return block.host_ns(Phase.LOOP) / 1e9
    tail = block.fact(_TAIL)
    return np.full(len(block), np.nan) if tail is None else tail / 1e9


def _merged(first: Distribution | None, second: Distribution | None) -> Distribution | None:
    if first is None or second is None:
        return second if first is None else first
    return first.merge(second)
