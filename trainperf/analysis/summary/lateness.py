"""Lateness of ranks: their waits where they meet, added up step by step, and judged.

A synchronous step waits at its synchronisation points: in backward for the all-reduce; under
Lightning on more than one rank, before every fetch, which is in the `loop` phase; and in any phase
in which collectives are issued, as a metric that is reduced, a norm over shards, or a barrier.  At
each point the rank that arrives last waits least.  The points are judged separately: delays of
different ranks at different points cancel in a sum, yet both are lost.

A rank is compared with the median of the *other* ranks, in its wait as in its phases: one early
rank makes nobody late, and of two ranks that are slow in different phases each keeps its own.  What
makes a rank late at a point is a phase since the point before.  A point may hold only some of the
ranks (a broadcast holds those that its tree passes through): a rank that was held there for another
is late at the next one without a fault of its own.  On an asynchronous device the all-reduce does
not hold the host up: it waits for the same delay again at `loop`.  With several micro-batches in a
step there is a wait in `loop` before each of them.  In both cases any phase of the step may be why
a rank is late there.

Phases follow each other in one cycle.  Two have no place of their own in it: callbacks run on both
sides of backward and explain at each point what the other phases leave; and where ranks meet
outside every phase, as where a Trainer gathers token counts, any phase between update and forward
may be why one is late.

Not visible: work that only one rank does *after* its last hook (rank 0's logging), or in the phase
in which the ranks meet but before they do, since it lengthens that phase of every rank alike.

Worked example, four ranks under Lightning, of which rank 3 has a callback of 5 ms after backward,
and the broadcast holds rank 1 for it.  Both arrive 5 ms after the others in the next backward, but
only rank 3 exceeds them in a phase that is its own work, by 5 ms in `callbacks`: it is named.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import takewhile

import numpy as np

from trainperf.analysis.summary.schema import MOST_RANKS, LateRank, SyncPoint
from trainperf.analysis.summary.waits import own_ns, sync_points, wait_ns
from trainperf.core.arrays import Column
from trainperf.core.choice import first_that_holds
from trainperf.core.findings import LIMITS
from trainperf.core.phases import PHASES, Phase
from trainperf.core.stats.quantiles import Distribution, joined
from trainperf.core.steps.block import StepBlock


LEAST_LATE_S = 0.001
"""Healthy ranks differ by up to 0.2 ms (measured, traps 41); less than `LIMITS.worth` of a
step is not what makes it slow."""


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
"""From the all-reduce to the next one."""


class LatenessFold:
    """Waits of all ranks at their points, added up over aligned steady steps in constant memory.

    Args:
        ranks: The ranks, in the order of the blocks.
        loop_waits: Whether the framework makes the ranks wait for each other before a fetch.
        tail: Whether the all-reduce tail is measured.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        *,
        loop_waits: bool,
        tail: bool = True,
    ) -> None:
        self._ranks, self._tail = tuple(ranks), tail
        self._points = partial(sync_points, loop_waits=loop_waits, tail=tail)
        self._folds: dict[Phase, PointFold] = {}

    def observe(self, blocks: Sequence[StepBlock], collectives: object = None) -> None:
        """Take the same steps of every rank; what is known of collectives as for `sync_points`."""
        steady = [block.steady() for block in blocks]
        if len(blocks) < 2 or not all(map(len, steady)):
            return
        for point in self._points(collectives=collectives):
            waits_ns = np.stack([wait_ns(point, block, tail=self._tail) for block in steady])
            measured = np.logical_not(np.isnan(waits_ns).any(axis=0))
            if measured.any():
                fold = self._folds.setdefault(point, PointFold(point, len(blocks)))
                fold.observe(
                    np.rint(waits_ns[:, measured]), [each.select(measured) for each in steady]
                )

    def points(self, hosts: Mapping[int, str] | None = None) -> tuple[SyncPoint, ...]:
        """The points at which the ranks meet, in the order of the step.

        Args:
            hosts: Rank to the host it ran on, where that is known.
        """
        always = {point for point in self._points() if point in self._folds}
        judge = _Judge(self._folds, self._ranks, always)
        return tuple(judge.point(phase, hosts or {}) for phase in PHASES if phase in judge.met)

    def skew(self) -> Distribution | None:
        """Distribution of the largest skew at the all-reduce tail."""
        measured = self._tail and Phase.BACKWARD in self._folds
        return self._folds[Phase.BACKWARD].skews if measured else None


class PointFold:
    """Sums over steady steps at one point, nanoseconds; by place of the rank."""

    def __init__(self, phase: Phase, ranks: int) -> None:
        self.phase = phase
        self.n = 0
        self.late_steps = np.zeros(ranks, np.int64)
        """Steps in which a rank was clearly the last."""
        self.held_ns = np.zeros(ranks)
        """How long it held others up in those."""
        self.sums_ns = np.zeros((ranks, 1 + len(PHASES)))
        """Of the waits of each rank, and of what it spends in each phase."""
        self.totals_ns = np.zeros(4)
        """Of the least wait, the largest skew, the last rank's lateness and the longest wall time.
        """
        self.skews: Distribution | None = None
        self.late: Distribution | None = None
        """By how much the last rank came after the typical other one, where it clearly did."""
        self.synchronous = True
        self.whole_step = False
        """Whether the ranks may have met at this very point before, within the step."""

    def observe(self, waits_ns: Column, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps of all ranks, and their waits in these, a row per rank.

        E.g. in one step four ranks wait 9, 1, 8 and 9 ms: the second one comes last, and is 8 ms
        late, since the median of the others' waits is 9.  The first rank that it held up waits 7
        ms longer than it does.
        """
        walls_ns = np.maximum.reduce([block.wall_ns for block in blocks])
        self.n += len(walls_ns)
        self.synchronous = all(block.schema.synchronous for block in blocks)
        self.whole_step |= self.phase is not Phase.BACKWARD and (
            not self.synchronous or any((block.micro_batches > 1).any() for block in blocks)
        )
        ordered, ranks = np.sort(waits_ns, axis=0), len(blocks)
        least_ns, last = ordered[0], waits_ns.argmin(axis=0)
        # The *typical* other rank waits so long: one early rank is no fault of the others.
        late_ns = (ordered[ranks // 2] + ordered[(ranks + 1) // 2]) / 2 - least_ns
        # Not held are other ranks that are as late, or that the point lets pass.
        beyond_ns = waits_ns - least_ns
        held_ns = np.where(2 * beyond_ns >= late_ns, beyond_ns, late_ns).min(axis=0)
        totals = (least_ns, ordered[-1] - least_ns, late_ns, walls_ns)
        self.totals_ns += [each.sum() for each in totals]
        self.sums_ns[:, 0] += waits_ns.sum(axis=1)
        self.sums_ns[:, 1:] += [own_ns(block) for block in blocks]
        clearly = late_ns >= np.maximum(1e9 * LEAST_LATE_S, LIMITS.worth * walls_ns)
        np.add.at(self.late_steps, last[clearly], 1)
        np.add.at(self.held_ns, last[clearly], held_ns[clearly])
        self.skews = joined((self.skews, Distribution.of(totals[1] / 1e9)))
        self.late = joined((self.late, Distribution.of(late_ns[clearly] / 1e9)))

    @property
    def enough_s(self) -> float:
        """From so much on a rank is clearly late."""
        return max(LEAST_LATE_S, LIMITS.worth * float(self.totals_ns[-1]) / self.n / 1e9)


class _Judge:
    """All points of a run; means in seconds, by place of the rank.

    Args:
        folds: Of `backward` and, where the framework waits between steps, `loop`; and of further
            phases in which collectives were issued, which are points where the ranks met in them.
        ranks: The ranks, by place.
        always: Phases in which ranks are known to wait, and not only to issue collectives.
    """

    def __init__(
        self, folds: Mapping[Phase, PointFold], ranks: Sequence[int], always: Collection[Phase]
    ) -> None:
        self.folds, self.ranks, self.always = folds, ranks, always
        excess_s = {phase: _beyond(fold.sums_ns / fold.n / 1e9) for phase, fold in folds.items()}
        self.late_s = {phase: -each[:, 0] for phase, each in excess_s.items()}
        """By how much each rank arrives at a point after the typical other one."""
        self.work_s = {phase: each[:, 1:] for phase, each in excess_s.items()}
        """Excess of each rank in each phase."""
        self.blamed_s = np.zeros((len(ranks), len(PHASES)))
        """What of it explains a delay at an earlier point."""
        self.met = set(always)
        for phase in _CYCLE:
            if phase in folds and self._meet(phase):
                self.met.add(phase)

    def _meet(self, phase: Phase) -> bool:
        """Whether ranks that begin a phase apart end it together.

        In a phase with a collective that everybody waits for a late rank spends less time, by as
        much as it is late.
        """
        begins_s = self.work_s[phase][:, self._since(phase)].sum(axis=1)
        apart_s = float(np.ptp(begins_s))
        left_s = float(np.ptp(begins_s + self.work_s[phase][:, phase]))
        return apart_s >= self.folds[phase].enough_s and left_s <= (1 - LIMITS.regular) * apart_s

    def _since(self, point: Phase) -> list[Phase]:
        """Phases since the point before, the latest first."""
        after = _CYCLE.index(point)
        turn = [*reversed(_CYCLE[:after]), *reversed(_CYCLE[after + 1 :])]
        if self.folds[point].whole_step:
            return turn
        if point is Phase.OTHER:
            turn = [each for each in reversed(_CYCLE[:-2]) if each is not point]
        # Of a tail the wait is a part of the phase: the rest is work of the rank's own.
        own = [point] if point is Phase.BACKWARD and point in self.always else []
        return own + list(takewhile(lambda phase: phase not in self.met, turn))

    def point(self, phase: Phase, hosts: Mapping[int, str]) -> SyncPoint:
        """The point's figures, and the ranks to blame if there are any."""
        fold = self.folds[phase]
        group = self._group(phase)
        named = self._named(phase, group)
        counts = fold.late_steps
        transfer_s, lost_s, even_s, _ = (fold.totals_ns / fold.n / 1e9).tolist()
        return SyncPoint(
            point=phase.label,
            n=fold.n,
            wait_s=tuple((fold.sums_ns[:, 0] / fold.n / 1e9).tolist()),
            transfer_s=transfer_s,
            skew_s=fold.skews.value() if fold.skews else None,
            lost_s=lost_s,
            late_fraction=float(counts[group].sum() if group else counts.max()) / fold.n,
            even_s=even_s,
            named_s=float(fold.held_ns[group].sum()) / fold.n / 1e9 if named else 0.0,
            who=first_that_holds(
                ("too_few_steps", fold.n < LIMITS.steps),
                ("same", named),
                ("rotating", 2 * counts.sum() >= fold.n),
                ("nobody", True),
            ),
            late=named,
            host=_host([each.rank for each in named], self.ranks, hosts),
            often_late={
                self.ranks[place]: float(counts[place]) / fold.n
                for place in np.argsort(-counts, kind="stable")[:MOST_RANKS]
                if counts[place]
            },
        )

    def _group(self, phase: Phase) -> list[int]:
        """Places of the ranks that are late again and again, about as late as the latest one.

        In most of the steps, or in most of those in which anybody is: a coin flip gives 1 / ranks.

        Of eight ranks of a slow host one is a little slower still, and last in most of the steps.
        """
        fold, late_s = self.folds[phase], self.late_s[phase]
        group = np.flatnonzero(late_s >= max(fold.enough_s, LIMITS.regular * late_s.max()))
        late_steps = int(fold.late_steps.sum())
        enough = min(LIMITS.regular * fold.n, max(LIMITS.steps, LIMITS.regular * late_steps))
        again = fold.n >= LIMITS.steps and fold.late_steps[group].sum() >= enough
        return group.tolist() if again and 2 * len(group) <= len(self.ranks) else []

    def _named(self, phase: Phase, group: Sequence[int]) -> tuple[LateRank, ...]:
        """Those of the group that are late by themselves.

        Where host and device work in step all of a delay is in some phase: a rank without one in
        which it is slower was not held where the others were.  Late now and then, a rank is named
        with its cause only.
        """
        fold = self.folds[phase]
        late = [self._late(phase, place) for place in group]
        always = fold.late_steps[group].sum() >= LIMITS.regular * fold.n
        own = not always or (fold.synchronous and any(each.cause for each in late))
        return tuple(each for each in late if each.cause or not own)

    def _late(self, point: Phase, place: int) -> LateRank:
        """A late rank with the phase since the point before in which it lost most."""
        fold, arrives_s = self.folds[point], float(self.late_s[point][place])
        late_s = fold.late.quantile(50.0) if fold.late else arrives_s
        lost_s = self._lost_s(point, place)
        cause = max(lost_s, key=lost_s.__getitem__, default=None)
        # It must cover half of the delay.  Late now and then, it is so by less on average.
        if cause is None or 2 * lost_s[cause] < min(late_s, arrives_s):
            return LateRank(rank=self.ranks[place], late_s=late_s, cause=None, cause_s=None)
        cause_s = min(lost_s[cause], arrives_s)
        # A delay that was waited for is not waited for again.
        self.blamed_s[place, cause] += cause_s * fold.synchronous
        return LateRank(rank=self.ranks[place], late_s=late_s, cause=cause.label, cause_s=cause_s)

    def _lost_s(self, point: Phase, place: int) -> dict[Phase, float]:
        """Phase to what it can account for of a rank's delay.

        Callbacks, some of which run on the other side of backward, account for what the other
        phases leave.
        """
        excess_s = self.work_s[point][place] - self.blamed_s[place]
        phases = [each for each in self._since(point) if each is not Phase.CALLBACKS]
        lost_s: dict[Phase, float] = {each: float(excess_s[each]) for each in phases}
        rest_s = float(self.late_s[point][place]) - sum(lost_s.values())
        if point is not Phase.CALLBACKS:
            lost_s[Phase.CALLBACKS] = min(rest_s, float(excess_s[Phase.CALLBACKS]))
        return lost_s


def _beyond(values: Column) -> Column:
    """Each value of a column beyond the median of the others."""
    others = (np.delete(values, place, axis=0) for place in range(len(values)))
    return values - np.stack([np.median(each, axis=0) for each in others])


def _host(late: Sequence[int], ranks: Sequence[int], hosts: Mapping[int, str]) -> str:
    """The host all of whose ranks are late, several of them, and no other host's; else empty."""
    names = {hosts.get(rank, "") for rank in late}
    there = {rank for rank in ranks if hosts.get(rank, "") in names}
    alone = len(late) > 1 and len(names) == 1 and there == set(late) and len(there) < len(ranks)
    return names.pop() if alone else ""
