"""Judgement of lateness: sums of waits at each point, the ranks to blame there, and for what.

What is compared with what, and why, is said in `trainperf.analysis.summary.lateness`.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from trainperf.analysis.summary.schema import MOST_RANKS, LateRank, SyncPoint, WhoIsLate
from trainperf.analysis.summary.waits import Numbers, Waits
from trainperf.core.findings import LIMITS
from trainperf.core.phases import PHASES, Phase
from trainperf.core.stats.quantiles import Distribution, joined
from trainperf.core.steps.block import Column


LEAST_LATE_S = 0.001
"""Healthy ranks differ by up to 0.2 ms (measured, traps 41)."""


LEAST_LATE_FRACTION = LIMITS.worth
"""Of the step: below it the delay is not what makes the step slow."""


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


_UNNAMED_BEFORE_FORWARD = (*_CYCLE[:2], *_CYCLE[3:6], Phase.OTHER, *_CYCLE[6:])
"""The same of a loop whose unnamed collectives are between the fetch and forward (a Trainer's)."""


class PointFold:
    """Sums over steady steps at one point, nanoseconds; by place of the rank."""

    def __init__(self, phase: Phase, ranks: int, *, always: bool) -> None:
        self.phase = phase
        self.always = always
        """Whether ranks are known to wait in the phase, and not only to issue collectives in it."""
        self.n = 0
        self.skews: Distribution | None = None
        self.late: dict[int, Distribution | None] = {}
        """By how much a rank came after the typical other one, where it was clearly the last."""
        self.late_steps = np.zeros(ranks, np.int64)
        """Steps in which it was so."""
        self.held_ns = np.zeros(ranks)
        self.sums_ns = np.zeros((ranks, 1 + len(PHASES)), np.int64)
        # Halves of nanoseconds at most: their sums are exact in any order.
        self.transfer_ns = self.lost_ns = self.even_ns = self.walls_ns = 0.0
        self.left: Distribution | None = None
        """What a step would have taken without the delay of its last rank."""
        self.synchronous = True
        self.whole_step = False
        """Whether the ranks may have met at this very point before, within the step."""

    def add(self, waits: Waits, walls_ns: Column) -> None:
        """Take the waits of all ranks in the next steps."""
        self.synchronous = waits.synchronous
        several = waits.accumulates or not waits.synchronous
        self.whole_step |= self.phase is not Phase.BACKWARD and several
        skew_ns, late_ns = waits.most_ns - waits.least_ns, waits.late_ns()
        held_ns = waits.held_ns(late_ns)
        self.n += len(waits)
        self.transfer_ns += float(waits.least_ns.sum())
        self.lost_ns += float(skew_ns.sum())
        self.even_ns += float(late_ns.sum())
        self.walls_ns += float(walls_ns.sum())
        self.skews = joined((self.skews, Distribution.of(skew_ns / 1e9)))
        for place, sums_ns in waits.sums_ns.items():
            self.sums_ns[place] += sums_ns
        # The *typical* other rank waits so long: one early rank is no fault of the others.
        clearly = late_ns >= np.maximum(1e9 * LEAST_LATE_S, LEAST_LATE_FRACTION * walls_ns)
        for place in np.unique(waits.last[clearly]).tolist():
            mine = clearly & (waits.last == place)
            self.late_steps[place] += mine.sum()
            self.held_ns[place] += held_ns[mine].sum()
            late = Distribution.of(late_ns[mine] / 1e9)
            self.late[place] = joined((self.late.get(place), late))
        left_ns = walls_ns - np.where(clearly, held_ns, 0.0)
        self.left = joined((self.left, Distribution.of(left_ns / 1e9)))

    def seconds(self, total_ns: float) -> float:
        """The mean over the steps."""
        return total_ns / self.n / 1e9

    @property
    def enough_s(self) -> float:
        """From so much on a rank is clearly late."""
        return max(LEAST_LATE_S, LEAST_LATE_FRACTION * self.seconds(self.walls_ns))


class LatenessJudge:
    """All points of a run; means in seconds, by place of the rank.

    Args:
        folds: Of `backward` and, where the framework waits between steps, `loop`; and of further
            phases in which collectives were issued, which are points where the ranks met in them.
        ranks: The ranks, by place.
    """

    def __init__(self, folds: Mapping[Phase, PointFold], ranks: Sequence[int]) -> None:
        self.folds, self.ranks = folds, ranks
        self.blamed: dict[tuple[str, int], float] = {}
        """Phase and place to what it was blamed for at an earlier point."""
        means = {phase: fold.sums_ns / fold.n / 1e9 for phase, fold in folds.items()}
        self.wait_s = {phase: mean_s[:, 0] for phase, mean_s in means.items()}
        self.late_s = {phase: _beyond(-wait_s) for phase, wait_s in self.wait_s.items()}
        """By how much each rank arrives at a point after the typical other one."""
        self.work_s = {phase: self._work_s(mean_s[:, 1:]) for phase, mean_s in means.items()}
        """Excess of each rank in each phase."""
        self.met = {phase for phase, fold in folds.items() if fold.always}
        self.cycle: tuple[Phase, ...] = _CYCLE
        if Phase.OTHER in folds and not self._meet(Phase.OTHER):
            self.cycle = _UNNAMED_BEFORE_FORWARD
            if not self._meet(Phase.OTHER):
                self.cycle = _CYCLE
        for phase in self.cycle:
            if phase in folds and phase not in self.met and self._meet(phase):
                self.met.add(phase)

    def _work_s(self, phases_s: Numbers) -> Numbers:
        """Without what a rank waited for in backward."""
        backward = self.folds.get(Phase.BACKWARD)
        if backward is not None and backward.always and backward.synchronous:
            phases_s = phases_s.copy()
            phases_s[:, Phase.BACKWARD] -= self.wait_s[Phase.BACKWARD]
        return np.stack([_beyond(phases_s[:, phase]) for phase in PHASES], axis=1)

    def point(self, phase: Phase, hosts: Mapping[int, str]) -> SyncPoint:
        """The point's figures, and the ranks to blame if there are any."""
        fold = self.folds[phase]
        group = self._group(phase)
        named = self._named(phase, group)
        for each in named:
            if each.cause and each.cause_s:
                self.blamed[each.cause, self.ranks.index(each.rank)] = each.cause_s
        counts = fold.late_steps
        often = sorted(np.flatnonzero(counts).tolist(), key=lambda place: (-counts[place], place))
        often = often[:MOST_RANKS]
        judged = fold.left if fold.n >= LIMITS.steps else None
        interval = judged.interval() if judged else None
        first = max(named, key=lambda each: each.late_s, default=None)
        return SyncPoint(
            point=phase.label,
            n=fold.n,
            wait_s=tuple(self.wait_s[phase].tolist()),
            transfer_s=fold.seconds(fold.transfer_ns),
            skew_s=fold.skews.value() if fold.skews else None,
            lost_s=fold.seconds(fold.lost_ns),
            straggler=first.rank if first else None,
            late_fraction=float(counts[group].sum() if group else counts.max()) / fold.n,
            late_s=first.late_s if first else None,
            cause=first.cause if first else None,
            cause_s=first.cause_s if first else None,
            even_s=fold.seconds(fold.even_ns),
            named_s=fold.seconds(float(fold.held_ns[group].sum())) if named else 0.0,
            margin_s=(interval[1] - interval[0]) / 2 if interval else None,
            who=_who(fold, named),
            late=named,
            host=_host([each.rank for each in named], self.ranks, hosts),
            often_late=tuple(self.ranks[place] for place in often),
            often_late_fraction=tuple((counts[often] / fold.n).tolist()),
        )

    def _group(self, phase: Phase) -> list[int]:
        """Places of the ranks that are late again and again, about as late as the latest one.

        In most of the steps, or in most of those in which anybody is: a coin flip gives 1 / ranks.

        Of eight ranks of a slow host one is a little slower still, and last in most of the steps.
        """
        fold, late_s = self.folds[phase], self.late_s[phase]
        group = np.flatnonzero(late_s >= max(fold.enough_s, LIMITS.regular * late_s.max()))
        steps = int(fold.late_steps[group].sum())
        always = steps >= LIMITS.regular * fold.n
        always |= steps >= max(LIMITS.steps, LIMITS.regular * int(fold.late_steps.sum()))
        if fold.n < LIMITS.steps or not always or 2 * len(group) > len(self.ranks):
            return []
        places: list[int] = group.tolist()
        return places

    def _named(self, phase: Phase, group: Sequence[int]) -> tuple[LateRank, ...]:
        """Those of the group that are late by themselves.

        Where host and device work in step all of a delay is in some phase: a rank without one in
        which it is slower was not held where the others were.  Late now and then, a rank is named
        with its cause only.
        """
        fold = self.folds[phase]
        # Each was the last in some of the steps only: the median is that of them all.
        late = joined(fold.late.get(place) for place in group)
        late_s = late.value() if late else None
        if late_s is None:
            return ()
        alone = len(group) == 1
        causes = {place: self._cause(phase, place, late_s, alone=alone) for place in group}
        always = fold.late_steps[group].sum() >= LIMITS.regular * fold.n
        own = not always or (fold.synchronous and any(cause for cause, _ in causes.values()))
        return tuple(
            LateRank(rank=self.ranks[place], late_s=late_s, cause=cause, cause_s=cause_s)
            for place, (cause, cause_s) in causes.items()
            if cause or not own
        )

    def _cause(
        self, point: Phase, place: int, late_s: float, *, alone: bool
    ) -> tuple[str | None, float | None]:
        """The phase since the point before in which the rank lost most, and how much."""
        arrives_s = float(self.late_s[point][place])
        lost_s = self._candidates(point, place, arrives_s, alone=alone)
        cause = max(lost_s, key=lost_s.__getitem__, default=None)
        # It must cover half of the delay.  Late now and then, it is so by less on average.
        if cause is None or 2 * lost_s[cause] < min(late_s, arrives_s):
            return None, None
        return cause.label, min(lost_s[cause], arrives_s)

    def _candidates(
        self, point: Phase, place: int, arrives_s: float, *, alone: bool
    ) -> dict[Phase, float]:
        """Phase to what it can account for."""
        excess_s, fold = self.work_s[point][place], self.folds[point]
        direct, before, earlier = self._since(point)
        lost_s: dict[Phase, float] = {
            each: float(excess_s[each]) for each in direct if each is not Phase.CALLBACKS
        }
        rest_s = arrives_s - sum(lost_s.values())
        if point is not Phase.CALLBACKS or point not in self.met:
            lost_s[Phase.CALLBACKS] = min(rest_s, self._callbacks_s(point, place, alone=alone))
        if before is not None:
            # What the point before has not absorbed of phases that came earlier.
            carried_s = float(excess_s[earlier].sum() - self.late_s[before][place])
            return lost_s | {e: min(float(excess_s[e]), rest_s, carried_s) for e in earlier}
        if fold.whole_step and fold.synchronous:
            # A delay that was waited for at backward is not waited for again.
            return {
                each: s - self.blamed.get((each.label, place), 0.0) for each, s in lost_s.items()
            }
        return lost_s

    def _callbacks_s(self, point: Phase, place: int, *, alone: bool) -> float:
        """Excess in callbacks, which run on both sides of backward, that is for this point.

        Those on the other side may be shorter, which hides that these are longer; or another rank
        that is late here too has held this one up, or let it pass, there.  One excess that could
        explain two delays explains the one at backward.
        """
        excess_s = float(self.work_s[point][place][Phase.CALLBACKS])
        if self.met != {Phase.BACKWARD, Phase.LOOP} or self.folds[Phase.LOOP].whole_step:
            return excess_s
        other = Phase.LOOP if point is Phase.BACKWARD else Phase.BACKWARD
        direct = [each for each in self._since(other)[0] if each is not Phase.CALLBACKS]
        elsewhere_s = float(self.late_s[other][place] - self.work_s[other][place][direct].sum())
        most_s = 0.0 if point is Phase.BACKWARD else max(0.0, excess_s)
        least_s = -np.inf if alone else 0.0
        return excess_s - max(least_s, min(elsewhere_s, most_s))

    def _since(self, point: Phase) -> tuple[list[Phase], Phase | None, list[Phase]]:
        """Phases since the point before, that point, and those between it and backward."""
        if self.folds[point].whole_step:
            return [each for each in self.cycle if each is not point], None, []
        after = self.cycle.index(point)
        # Of a tail the wait is a part of the phase: the rest is work of the rank's own.
        own = point is Phase.BACKWARD and self.folds[point].always
        direct: list[Phase] = [point] if own else []
        before: Phase | None = None
        earlier: list[Phase] = []
        for each in (*reversed(self.cycle[:after]), *reversed(self.cycle[after + 1 :])):
            if each is Phase.BACKWARD and each in self.met:
                break
            if before is None and each in self.met:
                before = each
            elif before is None:
                direct.append(each)
            elif each not in self.met and each is not Phase.CALLBACKS:
                earlier.append(each)
        return direct, before, earlier

    def _meet(self, phase: Phase) -> bool:
        """Whether ranks that begin a phase apart end it together.

        In a phase with a collective that everybody waits for a late rank spends less time, by as
        much as it is late.
        """
        begins_s = self.work_s[phase][:, self._since(phase)[0]].sum(axis=1)
        apart_s = float(np.ptp(begins_s))
        left_s = float(np.ptp(begins_s + self.work_s[phase][:, phase]))
        return apart_s >= self.folds[phase].enough_s and left_s <= (1 - LIMITS.regular) * apart_s


def _who(fold: PointFold, named: Collection[LateRank]) -> WhoIsLate:
    if fold.n < LIMITS.steps:
        return "too_few_steps"
    if named:
        return "same"
    return "rotating" if 2 * fold.late_steps.sum() >= fold.n else "nobody"


def _beyond(values: Numbers) -> Numbers:
    """Each value beyond the median of the others."""
    n = len(values)
    order = np.argsort(values, kind="stable")
    ordered, places = values[order], np.arange(n)
    # Without the value at place *p* of the order, the middle moves up where it stood below it.
    low, high = (n - 2) // 2, (n - 1) // 2
    out = np.empty(n)
    out[order] = ordered - (ordered[low + (places <= low)] + ordered[high + (places <= high)]) / 2
    return out


def _host(late: Sequence[int], ranks: Sequence[int], hosts: Mapping[int, str]) -> str:
    """The host all of whose ranks are late, several of them, and no other host's; else empty."""
    names = {hosts.get(rank, "") for rank in late}
    there = {rank for rank in ranks if hosts.get(rank, "") in names}
    alone = len(late) > 1 and len(names) == 1 and there == set(late) and len(there) < len(ranks)
    return names.pop() if alone else ""
