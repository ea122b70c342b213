"""Waits of ranks at their synchronisation points, added up step by step for a judgement.

A synchronous step waits at its synchronisation points: in backward for the all-reduce; under
Lightning on more than one rank, before every fetch, which is in the `loop` phase; and in any phase
in which collectives are issued, as a metric that is reduced, a norm over shards, or a barrier.  At
each point the rank that arrives last waits least.  The points are judged separately: delays of
different ranks at different points cancel in a sum, yet both are lost.

On an asynchronous device the all-reduce does not hold the host up: it waits for the same delay
again at `loop`.  With several micro-batches in a step there is a wait in `loop` before each of
them.  In both cases any phase of the step may be why a rank is late there.

Not visible: work that only one rank does *after* its last hook (rank 0's logging), or in the phase
in which the ranks meet but before they do, since it lengthens that phase of every rank alike.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.analysis.summary.late_windows import LateWindows
from trainperf.analysis.summary.lateness import (
    LEAST_LATE_FRACTION,
    LEAST_LATE_S,
    judged,
)
from trainperf.analysis.summary.point_figures import PointFigures
from trainperf.analysis.summary.schema import SyncPoint
from trainperf.analysis.summary.waits import NO_TAIL, Waits, phase_of, typical_places, wait_at
from trainperf.core.phases import PHASES, Phase
from trainperf.core.stats.quantiles import Distribution
from trainperf.core.steps.block import Column, StepBlock


COLLECTIVES = "collectives"
"""Their name in a run's configuration."""

LEAST_COLLECTIVES = 0.5
"""Per step, in a phase in which ranks may meet."""


def sync_points(
    *, loop_waits: bool, collectives: object = None, tail: bool = True
) -> tuple[str, ...]:
    """The points at which ranks may wait for each other.

    Args:
        loop_waits: Whether the framework makes the ranks wait for each other before a fetch.
        collectives: What was counted of them by phase, as it stands in the run's configuration;
            unknown where it is no text.
        tail: Whether the all-reduce tail is measured.
    """
    always = ("backward",) * tail + ("loop",) * loop_waits
    parts = collectives.split(",") if isinstance(collectives, str) else []
    counted = dict(pair for pair in map(str.split, parts) if len(pair) == 2)  # not `none`
    more = (
        NO_TAIL if phase is Phase.BACKWARD else phase.label
        for phase in PHASES
        if float(counted.get(phase.label, 0)) >= LEAST_COLLECTIVES and phase.label not in always
    )
    return (*always, *more)


class LatenessFold:
    """Waits of all ranks at their points, added up over aligned steady steps in constant memory.

    Args:
        ranks: The ranks, in the order of the blocks.
        loop_waits: Whether the framework makes the ranks wait for each other before a fetch.
        collectives: What is known of them by now, as for `sync_points`.
        tail: Whether the all-reduce tail is measured.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        *,
        loop_waits: bool,
        collectives: Callable[[], object] = lambda: None,
        tail: bool = True,
    ) -> None:
        self._ranks = tuple(ranks)
        self._always = sync_points(loop_waits=loop_waits, tail=tail)
        self._points = partial(sync_points, loop_waits=loop_waits, tail=tail)
        self._collectives = collectives
        self._folds: dict[str, _PointFold] = {}
        self._typical = typical_places(len(self._ranks))

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the same steps of every rank."""
        steady = [block.steady() for block in blocks]
        if len(blocks) < 2 or not all(len(block) for block in steady):
            return
        walls_ns = np.maximum.reduce([block.wall_ns for block in steady])
        for point in self._points(collectives=self._collectives()):
            steps = ~np.logical_or.reduce([np.isnan(wait_at(point, block)) for block in steady])
            if steps.any():
                parts = (
                    Waits.of(point, place, block.select(steps), self._typical)
                    for place, block in enumerate(steady)
                )
                waits = next(parts)
                for part in parts:
                    waits.add(part)
                self.add(point, waits, walls_ns[steps], steady[0].index[steps])

    def add(self, point: str, waits: Waits, walls_ns: Column, index: Column) -> None:
        """Take the waits of all ranks at a point, and the longest wall time and number of steps."""
        if point not in self._folds:
            always = point in self._always
            self._folds[point] = _PointFold(point, len(self._ranks), always=always)
        self._folds[point].add(waits, walls_ns, index)

    def points(self, hosts: Mapping[int, str] | None = None) -> tuple[SyncPoint, ...]:
        """The points at which the ranks meet, in the order of the step.

        Args:
            hosts: Rank to the host it ran on, where that is known.
        """
        figures = [fold.figures() for fold in self._folds.values() if fold.n]
        return tuple(map(self._timed, judged(figures, self._ranks, hosts or {})))

    def _timed(self, point: SyncPoint) -> SyncPoint:
        """The point with its timeline."""
        (windows,) = (
            fold.windows for fold in self._folds.values() if fold.phase.label == point.point
        )
        often = tuple(self._ranks[place] for place in windows.often())
        return msgspec.structs.replace(
            point, often_late=often, windows=windows.windows(), margin_s=windows.margin_s()
        )

    def skew(self) -> Distribution | None:
        """Distribution of the largest skew at `backward`."""
        return self._folds["backward"].skews if "backward" in self._folds else None


class _PointFold:
    """One point."""

    def __init__(self, point: str, ranks: int, *, always: bool) -> None:
        self.phase = phase_of(point)
        self.always = always
        self.n = 0
        self.skews: Distribution | None = None
        self.windows = LateWindows()
        self._late: dict[int, Distribution] = {}
        self._late_steps = np.zeros(ranks, dtype=np.int64)
        self._held_ns = np.zeros(ranks)
        self._waits_ns = np.zeros(ranks, dtype=np.int64)
        self._phases_ns = np.zeros((ranks, len(PHASES)), dtype=np.int64)
        self._least_ns = self._lost_ns = 0
        # Halves of nanoseconds at most: their sums are exact in any order.
        self._walls_ns = self._even_ns = 0.0
        self._synchronous, self._whole_step = True, False

    def add(self, waits: Waits, walls_ns: Column, index: Column) -> None:
        """Take the waits of all ranks in the next steady steps, which have these numbers."""
        skew_ns = waits.most_ns - waits.least_ns
        in_backward = self.phase is Phase.BACKWARD
        self._synchronous = waits.synchronous
        self._whole_step |= not in_backward and (waits.accumulates or not waits.synchronous)
        self.n += len(waits)
        self._least_ns += int(waits.least_ns.sum())
        self._lost_ns += int(skew_ns.sum())
        self._walls_ns += float(walls_ns.sum())
        self.skews = _merged(self.skews, Distribution.of(skew_ns / 1e9))
        for place, sums in waits.sums.items():
            self._waits_ns[place] += sums.wait_ns
            self._phases_ns[place] += sums.phases_ns
        late_ns = waits.late_ns()
        held_ns = waits.held_ns(late_ns)
        clearly = self._count_late(waits, walls_ns / 1e9, late_ns, held_ns)
        left_ns = walls_ns - np.where(clearly, held_ns, 0.0)
        self.windows.add(index.astype(np.int64), waits.last, clearly, skew_ns, left_ns)

    def figures(self) -> PointFigures:
        """Means over the steps."""
        return PointFigures(
            phase=self.phase,
            always=self.always,
            n=self.n,
            wait_s=self._waits_ns / self.n / 1e9,
            phases_s=self._phases_ns / self.n / 1e9,
            late_steps=self._late_steps,
            late=self._late,
            step_s=self._walls_ns / self.n / 1e9,
            transfer_s=self._least_ns / self.n / 1e9,
            lost_s=self._lost_ns / self.n / 1e9,
            even_s=self._even_ns / self.n / 1e9,
            held_s=self._held_ns / self.n / 1e9,
            skews=self.skews,
            whole_step=self._whole_step,
            synchronous=self._synchronous,
        )

    def _count_late(
        self, waits: Waits, wall_s: Column, late_ns: Column, held_ns: Column
    ) -> npt.NDArray[np.bool_]:
        """Steps in which the last rank is clearly late: the *typical* other rank waits so long.

        One early rank is no fault of the others.
        """
        late_s = late_ns / 1e9
        self._even_ns += float(late_ns.sum())
        enough_s = np.maximum(LEAST_LATE_S, LEAST_LATE_FRACTION * wall_s)
        clearly: npt.NDArray[np.bool_] = late_s >= enough_s
        for place in np.unique(waits.last[clearly]).tolist():
            mine = clearly & (waits.last == place)
            self._late_steps[place] += int(mine.sum())
            self._held_ns[place] += float(held_ns[mine].sum())
            late = Distribution.of(late_s[mine])
            if late is not None:
                before = self._late.get(place)
                self._late[place] = late if before is None else before.merge(late)
        return clearly


def _merged(first: Distribution | None, second: Distribution | None) -> Distribution | None:
    if first is None or second is None:
        return second if first is None else first
    return first.merge(second)
