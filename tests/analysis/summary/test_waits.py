"""Waits per step: who comes last, by how much, and how long the first rank waits for it."""

import numpy as np
import pytest
from support.blocks import block_of
from support.runs import MS, make_step

from trainperf.analysis.summary.lateness import PointFold
from trainperf.core.phases import Phase
from trainperf.core.steps.block import StepSchema


WAITS_MS = np.array([(9, 5), (1, 5), (8, 5), (9, 7)])
"""Of four ranks in two steps."""


def test_the_last_rank_is_held_against_the_median_of_the_others() -> None:
    """The worked example: rank 1 is 8 ms late, and one that waits 8 ms was the first held up."""
    schema = StepSchema(("tail_ns",))
    blocks = [
        block_of(
            [make_step(step, backward=20, facts={"tail_ns": int(ms) * MS}) for step, ms in of_rank],
            schema,
        )
        for of_rank in map(enumerate, WAITS_MS)
    ]
    fold = PointFold(Phase.BACKWARD, 4)

    fold.observe(WAITS_MS * float(MS), blocks)

    assert fold.late_steps.tolist() == [0, 1, 0, 0]
    assert fold.held_ns.tolist() == [0, 7 * MS, 0, 0]
    assert fold.totals_ns.tolist() == [6 * MS, 10 * MS, 8 * MS, 40 * MS]
    assert fold.sums_ns[:, 0].tolist() == [ms * MS for ms in (14, 6, 13, 16)]
    assert fold.sums_ns[:, 1 + Phase.BACKWARD] == pytest.approx(
        [(40 - ms) * MS for ms in (14, 6, 13, 16)]
    )
