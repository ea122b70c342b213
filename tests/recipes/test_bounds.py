"""A bound is the most that a change can gain: what it takes away is left out, and no more."""

from pathlib import Path

import pytest
from support.audits import evidence_of, product

from recipes.gpt2 import bounds


def test_fewer_micro_batches_may_save_what_is_spent_around_each(tmp_path: Path) -> None:
    """Nothing to gain in forward (20 ms) and backward (30), but 50 ms of callbacks and loop.

    Forward is computed twice then: of 100 ms 70 are left where half a loop costs nothing.
    """
    evidence = evidence_of(
        tmp_path,
        [
            product("mm", 20, flops=20 * 10**9),
            product("mm", 30, flops=30 * 10**9, part="backward"),
        ],
        micro_batches=4,
        forward=20.0,
        backward=30.0,
        callbacks=10.0,
        loop=40.0,
    )

    assert bounds.larger_batch(evidence).at_most == pytest.approx(100 / 70, rel=0.01)
