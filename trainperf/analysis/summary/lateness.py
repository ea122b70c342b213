"""Lateness of ranks: their waits where they meet, added up step by step, and judged.

A synchronous step waits at its synchronisation points: in backward for the all-reduce; under
Lightning on more than one rank, before every fetch, which is in the `loop` phase; and in any phase
in which collectives are issued, as a metric that is reduced, a norm over shards, or a barrier.  At
each point the rank that arrives last waits least.  The points are judged separately: delays of
different ranks at different points cancel in a sum, yet both are lost.

A rank is compared with the median of the *other* ranks, in its wait as in its phases: one early
rank makes nobody late, and of two ranks that are slow in different phases each keeps its own.  What
makes a rank late at a point is a phase since the point before.  A point may hold only some of the
ranks (a broadcast holds those that its tree passes through): what such a point has not absorbed
arrives at the next one, and a rank that was held there for another is late without a fault of its
own.  On an asynchronous device the all-reduce does not hold the host up: it waits for the same
delay again at `loop`.  With several micro-batches in a step there is a wait in `loop` before each
of them.  In both cases any phase of the step may be why a rank is late there.

Not visible: work that only one rank does *after* its last hook (rank 0's logging), or in the phase
in which the ranks meet but before they do, since it lengthens that phase of every rank alike.

Worked example, four ranks under Lightning, of which rank 3 has a callback of 5 ms after backward,
and the broadcast holds rank 1 for it.  Both arrive 5 ms after the others in the next backward, but
only rank 3 exceeds them in a phase that is its own work, by 5 ms in `callbacks`: it is named.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from trainperf.analysis.summary.lateness_judge import LatenessJudge, PointFold
from trainperf.analysis.summary.schema import SyncPoint
from trainperf.analysis.summary.waits import Waits, phase_of, sync_points, typical_places, wait_at
from trainperf.core.phases import PHASES
from trainperf.core.stats.quantiles import Distribution
from trainperf.core.steps.block import Column, StepBlock


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
        self._points = partial(sync_points, loop_waits=loop_waits, tail=tail)
        self._collectives = collectives
        self._folds: dict[str, PointFold] = {}
        self._typical = typical_places(len(self._ranks))

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the same steps of every rank."""
        steady = [block.steady() for block in blocks]
        if len(blocks) < 2 or not all(len(block) for block in steady):
            return
        walls_ns = np.maximum.reduce([block.wall_ns for block in steady])
        for point in self.points_now():
            steps = ~np.logical_or.reduce([np.isnan(wait_at(point, block)) for block in steady])
            if steps.any():
                waits, *others = (
                    Waits.of(point, place, block.select(steps), self._typical)
                    for place, block in enumerate(steady)
                )
                for other in others:
                    waits.add(other)
                self.add(point, waits, walls_ns[steps])

    def points_now(self) -> tuple[str, ...]:
        """The points at which ranks may wait for each other, by what is known of collectives."""
        return self._points(collectives=self._collectives())

    def add(self, point: str, waits: Waits, walls_ns: Column) -> None:
        """Take the waits of all ranks at a point in the next steps, and the longest wall times."""
        if point not in self._folds:
            always = point in self._points()
            self._folds[point] = PointFold(phase_of(point), len(self._ranks), always=always)
        self._folds[point].add(waits, walls_ns)

    def points(self, hosts: Mapping[int, str] | None = None) -> tuple[SyncPoint, ...]:
        """The points at which the ranks meet, in the order of the step.

        Args:
            hosts: Rank to the host it ran on, where that is known.
        """
        folds = {fold.phase: fold for fold in self._folds.values()}
        if not folds:
            return ()
        judge = LatenessJudge(folds, self._ranks)
        return tuple(judge.point(phase, hosts or {}) for phase in PHASES if phase in judge.met)

    def skew(self) -> Distribution | None:
        """Distribution of the largest skew at `backward`."""
        return self._folds["backward"].skews if "backward" in self._folds else None
