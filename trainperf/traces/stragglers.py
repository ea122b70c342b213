"""Stragglers: the ranks that others waited for, by the time each spent in the same collectives."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from trainperf.traces.event_table import NONE, EventTable
from trainperf.traces.metrics.collectives import Collectives
from trainperf.traces.metrics.communication import backward_windows
from trainperf.traces.metrics.host import HostWork
from trainperf.traces.metrics.spans import StepSpans
from trainperf.traces.results import CollectiveKey, RankCollectives, Straggler


FORWARD = "forward"
BACKWARD = "backward"

_TOGETHER = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""Kinds in which every rank waits for every other; in the rest some ranks go on at once."""

AS_LATE = 0.8
"""A rank with so much of the largest lateness is named too."""


def rank_collectives(
    table: EventTable, steps: StepSpans, host: HostWork, collectives: Collectives
) -> RankCollectives:
    """The collectives of the recorded steps that all ranks take part in, each with its key."""
    begin, _ = backward_windows(table, steps, host)
    repeats: Counter[tuple[int, str, str]] = Counter()
    seconds: dict[CollectiveKey, float] = {}
    backward: set[CollectiveKey] = set()
    for place in np.argsort(collectives.start, kind="stable").tolist():
        step = int(collectives.step[place])
        if step == NONE or collectives.kind[place] not in _TOGETHER:
            continue
        kind = (int(steps.number[step]), collectives.group[place], collectives.kind[place])
        key = (*kind, repeats[kind])
        repeats[kind] += 1
        seconds[key] = int(collectives.end[place] - collectives.start[place]) / 1e9
        if collectives.launched_ns[place] >= begin[step]:
            backward.add(key)
    return RankCollectives(
        seconds=seconds, backward=frozenset(backward), first=next(iter(seconds), None)
    )


def stragglers(ranks: Mapping[int, RankCollectives]) -> tuple[tuple[Straggler, ...], list[str]]:
    """Who was waited for in each step, and what could not be compared.

    Collectives end together, so the least time any rank spends in one is what it takes; the rest
    is waiting.  A rank that waits less than the others came later.  The first collective of a
    recording is left out: there the ranks wait for what happened before it.
    """
    if len(ranks) < 2:
        return (), []
    keys, notes = _paired(ranks)
    by_step: dict[int, list[CollectiveKey]] = defaultdict(list)
    for key in keys:
        by_step[key[0]].append(key)
    out: list[Straggler] = []
    for step in sorted(by_step):
        out += _of_step(step, by_step[step], ranks)
    return tuple(out), notes


def _paired(ranks: Mapping[int, RankCollectives]) -> tuple[list[CollectiveKey], list[str]]:
    """Keys that every rank has, where every rank has as many of the kind in that step."""
    counts = [Counter(key[:3] for key in rank.seconds) for rank in ranks.values()]
    every = set.intersection(*(set(count) for count in counts))
    alike = {kind for kind in every if len({count[kind] for count in counts}) == 1}
    unlike = set().union(*counts) - alike
    notes = []
    if unlike:
        steps = len({kind[0] for kind in unlike})
        notes.append(
            f"in {steps} step{'' if steps == 1 else 's'} the ranks do not record the same "
            "collectives: those are not compared"
        )
    rank = next(iter(ranks.values()))
    return [key for key in rank.seconds if key[:3] in alike], notes


def _of_step(
    step: int, keys: Sequence[CollectiveKey], ranks: Mapping[int, RankCollectives]
) -> list[Straggler]:
    any_rank = next(iter(ranks.values()))
    names = list(ranks)
    spent = np.array([[ranks[rank].seconds[key] for key in keys] for rank in names])
    transfer = spent.min(axis=0)
    waits = spent - transfer
    late = np.array([key in any_rank.backward for key in keys], bool)
    counted = np.array([key != any_rank.first or len(keys) == 1 for key in keys], bool)
    points = {
        name: waits[:, mine & counted].sum(axis=1)
        for name, mine in ((FORWARD, ~late), (BACKWARD, late))
    }
    point = max(points, key=lambda name: float(np.ptp(points[name])))
    return [
        Straggler(
            step=step,
            rank=names[place],
            wait_s=lateness,
            point=point,
            transfer_s=float(transfer.sum()),
        )
        for place, lateness in _latest(points[point])
    ]


def _latest(waits: "np.typing.NDArray[np.float64]") -> list[tuple[int, float]]:
    """Places of the ranks that waited least, and how much longer another one did."""
    lateness = waits.max() - waits
    most = float(lateness.max())
    if most <= 0:
        return []
    places = np.flatnonzero(lateness >= AS_LATE * most)
    if len(places) > len(waits) // 2:
        # Most of the ranks are no stragglers: one waited, and the others came together.
        places = places[[int(np.argmax(lateness[places]))]]
    ordered = sorted(places.tolist(), key=lambda place: (-lateness[place], place))
    return [(place, float(lateness[place])) for place in ordered]
