"""Ranks that were given the same: by what each has learned, where every rank has left a file."""

from pathlib import Path

import pytest
from support.runs import RankSpec, make_info, make_steps, summary_of

from trainperf.core.steps.records import Scalar, Totals


def rank(number: int, world_size: int = 2, **learned: Scalar) -> RankSpec:
    """One of several that has learned this."""
    return RankSpec(
        steps=make_steps(60, forward=1),
        info=make_info(rank=number, world_size=world_size),
        totals=Totals(at_step=59, config={"backend": "gloo", **learned}),
    )


BOTH = {"training_inputs": "1.5 2.5 3.5", "validation_inputs": "4.5"}


@pytest.mark.parametrize(
    ("ranks", "same"),
    [
        ([rank(0, **BOTH), rank(1, **BOTH)], ("training", "validation")),
        ([rank(0, **BOTH), rank(1, **{**BOTH, "training_inputs": "1 2 3"})], ("validation",)),
        ([rank(0, **BOTH), rank(1, validation_inputs="4.5")], ("validation",)),
        ([rank(0, **BOTH), rank(1, training_inputs="1.5 2.5 3.5")], ("training",)),
        ([rank(0), rank(1)], ()),
        ([rank(0, 3, **BOTH), rank(1, 3, **BOTH)], ()),
        ([rank(0, 1, **BOTH)], ()),
    ],
    ids=["both", "validation", "no training", "no validation", "neither", "no file", "alone"],
)
def test_what_all_ranks_of_the_world_were_given_alike(
    tmp_path: Path, ranks: list[RankSpec], same: tuple[str, ...]
) -> None:
    """The numbers themselves are no setting of the run: another one has others."""
    run = summary_of(tmp_path, ranks).run

    assert run.same_inputs == same
    assert run.config["backend"] == "gloo"
    assert not run.config.keys() & BOTH.keys()
