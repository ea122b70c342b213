"""Shares of the step that stand on a fact: a sum over a sum, in steps of any length."""

import pytest
from support.blocks import block_of
from support.runs import make_step

from trainperf.core.steps.block import StepSchema
from trainperf.core.steps.records import RunInfo
from trainperf.meters import METERS
from trainperf.meters.fold import Fold, readings


@pytest.mark.parametrize(
    ("reading", "fact"),
    [
        ("data_stall_fraction", "data_stall_ns"),
        ("h2d_fraction", "h2d_device_ns"),
        ("allreduce_tail_fraction", "tail_ns"),
    ],
)
def test_a_share_in_a_short_step_does_not_dominate(reading: str, fact: str) -> None:
    """(0.9 + 0.1) / 10 s, not the mean of 0.9 and 0.011; a step without the fact is in neither."""
    steps = [
        make_step(0, forward=1_000, facts={fact: 900_000_000}),
        make_step(1, forward=9_000, facts={fact: 100_000_000}),
        make_step(2, forward=5_000, facts={fact: None}),
    ]
    fold = Fold(METERS)
    fold.observe(block_of(steps, StepSchema((fact,), "cuda")))

    assert readings([fold], RunInfo(columns=(fact,), device="cuda"))[reading].value == 0.1
