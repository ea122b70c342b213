"""Stragglers: the ranks that others waited for, by the time each spent in the same collectives."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import chain

import numpy as np

from trainperf.core.formatting.units import plural
from trainperf.core.groups import grouped
from trainperf.traces.event_table import NONE, EventTable
from trainperf.traces.metrics.collectives import Collectives
from trainperf.traces.metrics.communication import backward_windows
from trainperf.traces.metrics.host import HostWork
from trainperf.traces.metrics.spans import StepSpans
from trainperf.traces.results import CollectiveKind, RankCollectives, Straggler
from trainperf.traces.thresholds import THRESHOLDS


FORWARD = "forward"
BACKWARD = "backward"

_TOGETHER = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""Kinds in which every rank waits for every other; in the rest some ranks go on at once."""


def rank_collectives(
    table: EventTable, steps: StepSpans, host: HostWork, collectives: Collectives
) -> RankCollectives:
    """The collectives of the recorded steps that all ranks take part in, each with its key."""
    begin, _ = backward_windows(table, steps, host)
    spent_ns: dict[CollectiveKind, array[int]] = {}
    backward: dict[CollectiveKind, bytearray] = defaultdict(bytearray)
    for place in np.argsort(collectives.start, kind="stable").tolist():
        step = int(collectives.step[place])
        if step == NONE or collectives.kind[place] not in _TOGETHER:
            continue
        kind = (int(steps.number[step]), collectives.group[place], collectives.kind[place])
        spent = int(collectives.end[place] - collectives.start[place])
        spent_ns.setdefault(kind, array("q")).append(spent)
        backward[kind].append(bool(collectives.launched_ns[place] >= begin[step]))
    return RankCollectives(
        spent_ns=spent_ns,
        backward={kind: bytes(late) for kind, late in backward.items()},
        first=next(iter(spent_ns), None),
    )


def stragglers(ranks: Mapping[int, RankCollectives]) -> tuple[tuple[Straggler, ...], list[str]]:
    """Who was waited for in each step, and what could not be compared.

    Collectives end together, so the least time any rank spends in one is what it takes; the rest
    is waiting.  A rank that waits less than the others came later.  The first collective of a
    recording is left out: there the ranks wait for what happened before it.
    """
    if len(ranks) < 2:
        return (), []
    alike, notes = _alike(ranks)
    by_step = grouped((kind[0], kind) for kind in alike)
    late = (_of_step(step, by_step[step], ranks) for step in sorted(by_step))
    return tuple(chain.from_iterable(late)), notes


def _alike(ranks: Mapping[int, RankCollectives]) -> tuple[list[CollectiveKind], list[str]]:
    """Kinds of which every rank has as many in that step: they are paired by their order."""
    each = (rank.spent_ns.items() for rank in ranks.values())
    counts = Counter((kind, len(spent)) for kind, spent in chain.from_iterable(each))
    alike = {kind for (kind, _), having in counts.items() if having == len(ranks)}
    unlike = {kind for kind, _ in counts} - alike
    steps = plural(len({kind[0] for kind in unlike}), "step")
    note = f"in {steps} the ranks do not record the same collectives: those are not compared"
    lowest = next(iter(ranks.values()))
    return [kind for kind in lowest.spent_ns if kind in alike], [note] if unlike else []


def _of_step(
    step: int, kinds: Sequence[CollectiveKind], ranks: Mapping[int, RankCollectives]
) -> list[Straggler]:
    lowest = next(iter(ranks.values()))
    transfer_ns = 0
    waits_ns = {point: np.zeros(len(ranks), np.int64) for point in (FORWARD, BACKWARD)}
    only = sum(len(lowest.spent_ns[kind]) for kind in kinds) == 1
    for kind in kinds:
        spent_ns = [np.frombuffer(rank.spent_ns[kind], np.int64) for rank in ranks.values()]
        least_ns = reduce(np.minimum, spent_ns)
        transfer_ns += int(least_ns.sum())
        counted = np.ones(len(least_ns), np.bool_)
        counted[0] = kind != lowest.first or only
        late = np.frombuffer(lowest.backward[kind], np.bool_)
        for point, mine in ((FORWARD, ~late & counted), (BACKWARD, late & counted)):
            waits_ns[point] += [int((spent - least_ns)[mine].sum()) for spent in spent_ns]
    point = max(waits_ns, key=lambda name: int(np.ptp(waits_ns[name])))
    names = list(ranks)
    return [
        Straggler(
            step=step,
            rank=names[place],
            wait_s=lateness,
            point=point,
            transfer_s=transfer_ns / 1e9,
        )
        for place, lateness in _latest(waits_ns[point] / 1e9)
    ]


def _latest(waits: "np.typing.NDArray[np.float64]") -> list[tuple[int, float]]:
    """Places of the ranks that waited least, and how much longer another one did."""
    lateness = waits.max() - waits
    most = float(lateness.max())
    if most <= 0:
        return []
    places = np.flatnonzero(lateness >= THRESHOLDS.as_late * most)
    if len(places) > len(waits) // 2:
        # Most of the ranks are no stragglers: one waited, and the others came together.
        places = places[[int(np.argmax(lateness[places]))]]
    ordered = sorted(places.tolist(), key=lambda place: (-lateness[place], place))
    return [(place, float(lateness[place])) for place in ordered]
