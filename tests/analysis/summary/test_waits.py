"""Waits per step: merged in any order, and the typical rank of very many."""

from itertools import permutations

import numpy as np
import pytest
from support.runs import MS, make_step

from trainperf.analysis.summary.waits import Waits, typical_places
from trainperf.core.steps.block import StepBlock, StepSchema


WAITS_MS = [(9, 5), (1, 5), (8, 5), (9, 7)]
"""Of four ranks in two steps."""


def of_rank(place: int) -> Waits:
    """The waits of one of them in backward."""
    records = [
        make_step(step, facts={"tail_ns": ms * MS}) for step, ms in enumerate(WAITS_MS[place])
    ]
    block = StepBlock.from_records(records, StepSchema(("tail_ns",)))
    return Waits.of("backward", place, block, typical=range(4))


@pytest.mark.parametrize("order", list(permutations(range(4)))[::5])
def test_waits_merge_in_any_order(order: tuple[int, ...]) -> None:
    """The worked example: rank 1 is 8 ms late; of three that are last the lowest is named."""
    waits = of_rank(order[0])
    for place in order[1:]:
        waits = waits.merge(of_rank(place))

    assert waits.least_ns.tolist() == [1 * MS, 5 * MS]
    assert waits.last.tolist() == [1, 0]
    assert waits.most_ns.tolist() == [9 * MS, 7 * MS]
    assert waits.late_ns().tolist() == [8 * MS, 0]
    assert {place: sums_ns[0] for place, sums_ns in waits.sums_ns.items()} == {
        place: sum(ms) * MS for place, ms in enumerate(WAITS_MS)
    }


def test_up_to_64_ranks_all_stand_for_the_typical_one() -> None:
    """The median is exact."""
    assert typical_places(64) == frozenset(range(64))


@pytest.mark.parametrize("ranks", [65, 1000, 1024, 100_000])
def test_of_more_ranks_64_do_from_all_over_the_job(ranks: int) -> None:
    """One from each 64th of the job, and not always the same one of a host with eight."""
    places = typical_places(ranks)

    assert len(places) == 64
    assert max(np.diff([-1, *sorted(places), ranks])) <= 2 * ranks / 64 + 1
    assert max(np.bincount([place % 8 for place in places])) < 24
