"""Judgement of waits: which ranks are late at each synchronisation point, why, and at what cost.

Plain arithmetic on means per rank (`PointFigures`), which the folds of
`trainperf.analysis.summary.stragglers` add up.  A rank is compared with the median of the *other*
ranks, in its wait as in its phases: one early rank makes nobody late, and of two ranks that are
slow in different phases each keeps its own.

The phases of a step form a cycle, cut by the points.  What makes a rank late at a point is a phase
since the point before.  A point may hold only some of the ranks (a broadcast holds those that its
tree passes through): what such a point has not absorbed arrives at the next one, and a rank that
was held there for another is late without a fault of its own.

Worked example, four ranks under Lightning, of which rank 3 has a callback of 5 ms after backward,
and the broadcast holds rank 1 for it.  Both arrive 5 ms after the others in the next backward, but
only rank 3 exceeds them in a phase that is its own work, by 5 ms in `callbacks`: it is named.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainperf.analysis.summary.ranks import LateRank, WhoIsLate
from trainperf.analysis.summary.schema import SyncPoint
from trainperf.core.phases import PHASES, Phase
from trainperf.core.stats.quantiles import Distribution


LEAST_LATE_S = 0.001
"""Healthy ranks differ by up to 0.2 ms (measured, traps 41)."""

LEAST_LATE_FRACTION = 0.05
"""Of the step: below it the delay is not what makes the step slow."""

LEAST_STEPS = 20
"""Steady steps before anything is claimed."""

LEAST_SHARE = 0.80
"""Of the steps in which the same ranks must be clearly late; a coin flip gives 1 / ranks.  Or of
those in which anybody is, if that are as many as *LEAST_STEPS*."""

LEAST_TURN = 0.4
"""Of an equal part of their steps: so often each of several must be the very last."""

LEAST_ROTATING = 0.5
"""Of the steps in which some rank must be clearly late, if it is not always the same."""

LEAST_EXPLAINED = 0.5
"""Of the delay that the largest excess must cover to be called its cause."""

LEAST_MET = 0.8
"""Of what ranks differ at the begin of a phase that must be gone at its end: they meet in it."""

_CYCLE = (
    Phase.OPTIMIZER,
    Phase.CALLBACKS,
    Phase.OTHER,
    Phase.LOOP,
    Phase.DATA_WAIT,
    Phase.H2D,
    Phase.FORWARD,
    Phase.BACKWARD,
)
"""From the all-reduce to the next one.  What no phase names is after the step's callbacks."""

_UNNAMED_BEFORE_FORWARD = (
    Phase.OPTIMIZER,
    Phase.CALLBACKS,
    Phase.LOOP,
    Phase.DATA_WAIT,
    Phase.H2D,
    Phase.OTHER,
    Phase.FORWARD,
    Phase.BACKWARD,
)
"""The same of a loop in which it is between the fetch and forward."""

_PHASE = {phase.label: phase for phase in PHASES}

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointFigures:
    """What was added up at one point over steady steps; seconds, by place of the rank."""

    phase: Phase
    """In which the ranks wait there."""
    always: bool
    """Whether they are known to, and not only to issue collectives in it."""
    n: int
    wait_s: Numbers
    """Mean wait per rank."""
    phases_s: Numbers
    """Mean time per rank and phase, over the same steps."""
    late_steps: npt.NDArray[np.int64]
    """Steps in which the rank was the last one, clearly."""
    late: Mapping[int, Distribution]
    """By how much it then came after the typical other one."""
    step_s: float
    transfer_s: float
    lost_s: float
    even_s: float
    """Mean of what the last rank comes after the typical other one: saved if it did not."""
    held_s: Numbers
    """As *even_s*, by the last rank, and up to the first of those that it held up."""
    skews: Distribution | None
    whole_step: bool
    """Whether the ranks may have met at this very point before, within the step."""
    synchronous: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Excess:
    """How much longer a rank was in one phase than the typical other one, mean seconds."""

    phase: Phase
    seconds: float


def judged(
    figures: Sequence[PointFigures], ranks: Sequence[int], hosts: Mapping[int, str] = {}
) -> tuple[SyncPoint, ...]:
    """The points in the order of the step, each with the ranks that are late there.

    Args:
        figures: Of `backward` and, where the framework waits between steps, `loop`; and of further
            phases in which collectives were issued, which are points where the ranks met in them.
        ranks: The ranks, by place.
        hosts: Rank to the host it ran on, where that is known.
    """
    if not figures:
        return ()
    judge = _Judge({each.phase: each for each in figures}, ranks)
    return tuple(judge.point(phase, hosts) for phase in PHASES if phase in judge.met)


class _Judge:
    """All points of a run."""

    def __init__(self, figures: Mapping[Phase, PointFigures], ranks: Sequence[int]) -> None:
        self.ranks = ranks
        self.figures = figures
        self.blamed: dict[tuple[Phase, int], float] = {}
        """Phase and place to what it was blamed for at an earlier point, seconds."""
        self.late = {phase: _beyond(-each.wait_s) for phase, each in figures.items()}
        """By how much each rank arrives at a point after the typical other one."""
        self.work = {phase: self._work(each) for phase, each in figures.items()}
        self.met = {phase for phase, each in figures.items() if each.always}
        self.cycle: tuple[Phase, ...] = _CYCLE
        self.cycle = self._ordered()
        for phase in self.cycle:
            if phase in figures and phase not in self.met and self._meet(phase):
                self.met.add(phase)

    def point(self, phase: Phase, hosts: Mapping[int, str]) -> SyncPoint:
        """The point's figures, and the ranks to blame if there are any."""
        at = self.figures[phase]
        group, share = self._group(phase)
        named = self._named(phase, group)
        for each in named:
            if each.cause and each.cause_s:
                self.blamed[_PHASE[each.cause], self.ranks.index(each.rank)] = each.cause_s
        first = max(named, key=lambda each: each.late_s, default=None)
        return SyncPoint(
            point=phase.label,
            n=at.n,
            wait_s=tuple(at.wait_s.tolist()),
            transfer_s=at.transfer_s,
            skew_s=at.skews.value() if at.skews else None,
            lost_s=at.lost_s,
            straggler=first.rank if first else None,
            late_fraction=share,
            late_s=first.late_s if first else None,
            cause=first.cause if first else None,
            cause_s=first.cause_s if first else None,
            even_s=at.even_s,
            named_s=float(at.held_s[group].sum()) if named else 0.0,
            who=self._who(phase, named=bool(named)),
            late=named,
            host=_host([each.rank for each in named], self.ranks, hosts),
        )

    # -- who ------------------------------------------------------------------------------------

    def _group(self, phase: Phase) -> tuple[list[int], float]:
        """Places of the ranks that are late again and again, and in which share of the steps."""
        at = self.figures[phase]
        shares = at.late_steps / at.n
        enough_s = max(LEAST_LATE_S, LEAST_LATE_FRACTION * at.step_s)
        group = np.flatnonzero(self.late[phase] >= enough_s)
        turn = at.late_steps[group].sum() / max(1, len(group))
        group = group[at.late_steps[group] >= LEAST_TURN * turn]
        steps = int(at.late_steps[group].sum())
        always = steps >= LEAST_SHARE * at.n
        always |= steps >= max(LEAST_STEPS, LEAST_SHARE * int(at.late_steps.sum()))
        if at.n < LEAST_STEPS or not always or 2 * len(group) > len(self.ranks):
            return [], float(shares.max())
        return group.tolist(), steps / at.n

    def _named(self, phase: Phase, group: Sequence[int]) -> tuple[LateRank, ...]:
        """Those of the group that are late by themselves.

        Where host and device work in step all of a delay is in some phase: a rank without one in
        which it is slower was not held where the others were.  Late now and then, a rank is named
        with its cause only.
        """
        at = self.figures[phase]
        late = _merged([at.late[place] for place in group if place in at.late])
        # Each was the last in some of the steps only: the median is that of them all.
        late_s = late.value() if late else None
        if late_s is None:
            return ()
        causes = {place: self._cause(phase, place, late_s, group) for place in group}
        always = sum(at.late_steps[place] for place in group) >= LEAST_SHARE * at.n
        if not always or (at.synchronous and any(causes.values())):
            causes = {place: cause for place, cause in causes.items() if cause is not None}
        return tuple(
            LateRank(
                rank=self.ranks[place],
                late_s=late_s,
                cause=cause.phase.label if cause else None,
                cause_s=cause.seconds if cause else None,
            )
            for place, cause in causes.items()
        )

    def _who(self, phase: Phase, *, named: bool) -> WhoIsLate:
        at = self.figures[phase]
        if at.n < LEAST_STEPS:
            return "too_few_steps"
        if named:
            return "same"
        return "rotating" if at.late_steps.sum() >= LEAST_ROTATING * at.n else "nobody"

    # -- why ------------------------------------------------------------------------------------

    def _work(self, at: PointFigures) -> Numbers:
        """Excess of each rank in each phase, without what it waited for in backward."""
        phases_s = at.phases_s.copy()
        backward = self.figures.get(Phase.BACKWARD)
        if backward is not None and backward.always and backward.synchronous:
            phases_s[:, Phase.BACKWARD] -= backward.wait_s
        return np.stack([_beyond(phases_s[:, phase]) for phase in PHASES], axis=1)

    def _cause(
        self, phase: Phase, place: int, late_s: float, group: Sequence[int]
    ) -> _Excess | None:
        """The phase since the point before in which the rank lost most."""
        arrives_s = float(self.late[phase][place])
        lost_s = self._candidates(phase, place, arrives_s, alone=len(group) == 1)
        cause = max(lost_s, key=lost_s.__getitem__, default=None)
        # Late now and then, it is so by less on average.
        if cause is None or lost_s[cause] < LEAST_EXPLAINED * min(late_s, arrives_s):
            return None
        return _Excess(phase=cause, seconds=min(lost_s[cause], arrives_s))

    def _candidates(
        self, phase: Phase, place: int, arrives_s: float, *, alone: bool
    ) -> dict[Phase, float]:
        """Phase to what it can account for."""
        excess_s = self.work[phase][place]
        direct, before, earlier = self._since(phase)
        direct = [each for each in direct if each is not Phase.CALLBACKS]
        lost_s = {each: float(excess_s[each]) for each in direct}
        rest_s = arrives_s - sum(lost_s.values())
        if phase is not Phase.CALLBACKS or phase not in self.met:
            lost_s[Phase.CALLBACKS] = min(rest_s, self._callbacks_s(phase, place, alone=alone))
        if before is None:
            # A delay that was waited for at backward is not waited for again.
            again = self.figures[phase].whole_step and self.figures[phase].synchronous
            blamed_s = self.blamed if again else {}
            return {each: s - blamed_s.get((each, place), 0.0) for each, s in lost_s.items()}
        # What the point before has not absorbed of phases that came earlier.
        late_before_s = float(self.late[before][place])
        carried_s = sum(float(excess_s[each]) for each in earlier) - late_before_s
        for each in earlier:
            lost_s[each] = min(float(excess_s[each]), rest_s, carried_s)
        return lost_s

    def _callbacks_s(self, phase: Phase, place: int, *, alone: bool) -> float:
        """Excess in callbacks, which run on both sides of backward, that is for this point."""
        excess_s = float(self.work[phase][place][Phase.CALLBACKS])
        if self.met != {Phase.BACKWARD, Phase.LOOP} or self.figures[Phase.LOOP].whole_step:
            return excess_s
        other = Phase.LOOP if phase is Phase.BACKWARD else Phase.BACKWARD
        direct = [each for each in self._since(other)[0] if each is not Phase.CALLBACKS]
        explained_s = sum(float(self.work[other][place][each]) for each in direct)
        elsewhere_s = float(self.late[other][place]) - explained_s
        # Those on the other side of backward may be shorter, which hides that these are longer; or
        # another one that is late here too has held up the rank, or let it pass, there.
        hidden_s = min(0.0, elsewhere_s) * alone
        if phase is Phase.BACKWARD:
            return excess_s - hidden_s
        # One excess that could explain two delays explains the one at backward.
        return excess_s - hidden_s - max(0.0, min(elsewhere_s, excess_s))

    def _since(self, phase: Phase) -> tuple[list[Phase], Phase | None, list[Phase]]:
        """Phases since the point before, that point, and those between it and backward."""
        at = self.figures[phase]
        if at.whole_step:
            return [each for each in self.cycle if each is not phase], None, []
        after = self.cycle.index(phase)
        back = [*reversed(self.cycle[:after]), *reversed(self.cycle[after + 1 :])]
        # Of a tail the wait is a part of the phase: the rest is work of the rank's own.
        direct: list[Phase] = [phase] if phase is Phase.BACKWARD and at.always else []
        before: Phase | None = None
        earlier: list[Phase] = []
        for each in back:
            if each is Phase.BACKWARD and each in self.met:
                break
            if before is not None:
                earlier.append(each)
            elif each in self.met:
                before = each
            else:
                direct.append(each)
        if before is None:
            return direct, None, []
        unmet = (each for each in earlier if each not in self.met)
        return direct, before, [each for each in unmet if each is not Phase.CALLBACKS]

    def _ordered(self) -> tuple[Phase, ...]:
        """The phases in their order: what no phase names is where its collectives hold the ranks.

        A Trainer gathers token counts there, between the fetch and forward.
        """
        if Phase.OTHER not in self.figures or self._meet(Phase.OTHER):
            return _CYCLE
        self.cycle = _UNNAMED_BEFORE_FORWARD
        return _UNNAMED_BEFORE_FORWARD if self._meet(Phase.OTHER) else _CYCLE

    def _meet(self, phase: Phase) -> bool:
        """Whether ranks that begin a phase apart end it together.

        In a phase with a collective that everybody waits for a late rank spends less time, by as
        much as it is late.
        """
        at = self.figures[phase]
        enough_s = max(LEAST_LATE_S, LEAST_LATE_FRACTION * at.step_s)
        direct = self._since(phase)[0]
        begins_s = self.work[phase][:, direct].sum(axis=1)
        ends_s = begins_s + self.work[phase][:, phase]
        apart_s = float(np.ptp(begins_s))
        return apart_s >= enough_s and float(np.ptp(ends_s)) <= (1 - LEAST_MET) * apart_s


def _beyond(values: Numbers) -> Numbers:
    """Each value beyond the median of the others."""
    n = len(values)
    if n < 2:
        return np.zeros(n)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    out = np.empty(n)
    # Without the value at place *p* of the order, the middle moves up where it stood below it.
    low, high = (n - 2) // 2, (n - 1) // 2
    for place, own in enumerate(order.tolist()):
        middle = ordered[low + (place <= low)] + ordered[high + (place <= high)]
        out[own] = values[own] - middle / 2
    return out


def _merged(parts: Collection[Distribution]) -> Distribution | None:
    merged: Distribution | None = None
    for part in parts:
        merged = part if merged is None else merged.merge(part)
    return merged


def _host(late: Sequence[int], ranks: Sequence[int], hosts: Mapping[int, str]) -> str:
    """The host all of whose ranks are late, several of them, and no other host's; else empty."""
    names = {hosts.get(rank, "") for rank in late}
    if len(late) < 2 or len(names) != 1 or "" in names:
        return ""
    name = names.pop()
    there = {rank for rank in ranks if hosts.get(rank) == name}
    return name if there == set(late) and len(there) < len(ranks) else ""
