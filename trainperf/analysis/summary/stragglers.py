"""Stragglers: which rank is late, at which point of the step, and in which phase it loses time.

A synchronous step waits at its synchronisation points: in backward for the all-reduce, and, under
Lightning on more than one rank, before every fetch, which is in the `loop` phase.  A plain loop
does not wait there.  At each point the rank that arrives last waits least.  The points are judged
separately: delays of different ranks at different points cancel in a sum, yet both are lost.

On an asynchronous device the all-reduce does not hold the host up: it waits for the same delay
again at `loop`.  With several micro-batches in a step there is a wait in `loop` before each of
them.  In both cases any phase of the step may be why a rank is late there.

Not visible: work that only one rank does *after* its last hook (rank 0's logging), since it
lengthens the `loop` phase of every rank alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainperf.analysis.summary.schema import SyncPoint
from trainperf.core.phases import PHASES, Phase
from trainperf.core.stats.quantiles import Distribution
from trainperf.core.steps.block import Column, StepBlock


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

_BEFORE_LOOP = (*_BETWEEN["backward"], *_BETWEEN["loop"])
"""Phases that can make a rank late at `loop` where it is not backward that it waited at before."""

_PHASE = {phase.label: phase for phase in PHASES}

Matrix = npt.NDArray[np.float64]


class LatenessFold:
    """Waits of all ranks at their points, added up over aligned steady steps in constant memory.

    Args:
        ranks: The ranks, in the order of the blocks.
        loop_waits: Whether the framework makes the ranks wait for each other before a fetch.
    """

    def __init__(self, ranks: Sequence[int], *, loop_waits: bool) -> None:
        self._ranks = tuple(ranks)
        self._backward = _PointFold("backward", ranks)
        self._loop = _PointFold("loop", ranks) if loop_waits else None

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the same steps of every rank."""
        steady = [block.steady() for block in blocks]
        if len(blocks) < 2 or not all(len(block) for block in steady):
            return
        self._backward.observe(steady)
        if self._loop is not None:
            self._loop.observe(steady)

    def points(self) -> tuple[SyncPoint, ...]:
        """The synchronisation points at which the waits are known, in the order of the step."""
        points = [self._at_backward()] if self._backward.n else []
        if self._loop is not None and self._loop.n:
            points.append(self._at_loop(self._loop, points))
        return tuple(points)

    def _at_backward(self) -> SyncPoint:
        late, early = self._backward.suspect(), self._backward.fastest()
        excess_s = self._backward.excess_s(late, early)
        if self._loop is not None and self._loop.n and not self._loop.whole_step:
            # The fastest rank's callbacks after backward hide the late one's before it: what
            # it is late at `loop` without another reason is added back.
            unexplained_s = self._loop.unexplained_s(late, early, self._loop.excess_s(late, early))
            excess_s[Phase.CALLBACKS] -= min(0.0, unexplained_s)
        return self._backward.judged(excess_s)

    def _at_loop(self, loop: "_PointFold", earlier: Sequence[SyncPoint]) -> SyncPoint:
        late, early = loop.suspect(), loop.fastest()
        excess_s = loop.excess_s(late, early)
        if not loop.synchronous:
            return loop.judged(excess_s)
        # In backward the host of the early rank waited, which is no work of its.
        excess_s[Phase.BACKWARD] = self._backward.excess_s(late, early)[Phase.BACKWARD]
        for point in earlier:
            # A delay that was waited for at backward is not waited for again.
            if point.cause is not None and point.cause_s is not None:
                blamed = [self._ranks[place] == point.straggler for place in (late, early)]
                excess_s[_PHASE[point.cause]] -= point.cause_s * (blamed[0] - blamed[1])
        return loop.judged(excess_s)

    def skew(self) -> Distribution | None:
        """Distribution of the largest skew at `backward`."""
        return self._backward.skews


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
        self.synchronous = True
        self.whole_step = False
        """Whether the previous synchronisation may have been at this very point."""

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the same steady steps of every rank."""
        measured = self._measured(blocks)
        if measured is None:
            return
        blocks = [block.select(measured) for block in blocks]
        waits = np.stack([_wait_s(self.point, block) for block in blocks])
        least = waits.min(axis=0)
        skew = waits - least
        self.synchronous = blocks[0].schema.synchronous
        several = any(bool((block.micro_batches > 1).any()) for block in blocks)
        self.whole_step |= self.point == "loop" and (several or not self.synchronous)
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
        if not self.n:
            return np.zeros(len(PHASES))
        excess: Column = (self._phases_s[late] - self._phases_s[early]) / self.n
        if self.point == "backward" and self.synchronous:
            # There the host itself waits inside backward, and the late rank hardly does.
            excess[Phase.BACKWARD] += self._late_s(late, early)
        return excess

    def unexplained_s(self, late: int, early: int, excess_s: Column) -> float:
        """How much later one rank arrives than another beyond what its phases explain."""
        return self._late_s(late, early) - float(excess_s[list(self._between())].sum())

    def judged(self, excess_s: Column) -> SyncPoint:
        """The point's figures, and the rank to blame if there is one.

        *excess_s* is how much longer the suspect than the fastest rank may have been in each phase
        before this point.
        """
        suspect = self.suspect()
        late_fraction = float(self._late_steps[suspect] / self.n)
        named = late_fraction >= LEAST_SHARE
        late = self._late[suspect] if named else None
        late_s = late.value() if late else None
        cause = self._cause(suspect, late_s, excess_s) if late_s else None
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

    def _between(self) -> tuple[Phase, ...]:
        return _BEFORE_LOOP if self.whole_step else _BETWEEN[self.point]

    def _measured(self, blocks: Sequence[StepBlock]) -> npt.NDArray[np.bool_] | None:
        waits = [_wait_s(self.point, block) for block in blocks]
        steps: npt.NDArray[np.bool_] = np.logical_and.reduce([~np.isnan(wait) for wait in waits])
        return steps if steps.any() else None

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

    def _cause(self, suspect: int, late_s: float, excess_s: Column) -> _Excess | None:
        """The phase between the points in which the suspect lost most against the fastest rank."""
        rest = self.unexplained_s(suspect, self.fastest(), excess_s)
        lost_s = {phase: float(excess_s[phase]) for phase in self._between()}
        lost_s[Phase.CALLBACKS] = min(float(excess_s[Phase.CALLBACKS]), rest)
        phase = max(lost_s, key=lost_s.__getitem__)
        if lost_s[phase] < LEAST_EXPLAINED * late_s:
            return None
        # The rest of the excess was waited for elsewhere in the step.
        return _Excess(phase=phase, seconds=min(lost_s[phase], late_s))


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
