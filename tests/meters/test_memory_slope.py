"""Memory growth: of one quantity, however the steps come in blocks."""

import numpy as np
import pytest
from support.blocks import block_of
from support.runs import make_steps

from trainperf.core.steps.block import StepSchema
from trainperf.meters.fold import Fold
from trainperf.meters.memory import METERS


@pytest.mark.parametrize("size", [1, 7, 64, 400])
def test_device_and_process_are_not_mixed_where_some_steps_know_only_one(size: int) -> None:
    """Steps without the device's figure tell nothing; they are not read by the process's."""
    facts = ("allocated_bytes", "owned_bytes")
    steps = make_steps(400, warmup=0, forward=1)
    for step in steps:
        step.facts.update(owned_bytes=1e9 + 7 * step.index)
        step.facts.update(allocated_bytes=1e6 + step.index if step.index % 3 else None)
    whole = block_of(steps, StepSchema(facts, "cuda"))
    fold = Fold([meter for meter in METERS if meter.name == "memory_slope_bytes_per_step"])
    for begin in range(0, 400, size):
        fold.observe(whole.select(np.arange(begin, min(begin + size, 400))))

    assert fold.reductions["memory_slope_bytes_per_step"].value() == pytest.approx(1.0)
