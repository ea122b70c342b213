"""A step of accumulation is its whole group of micro-batches."""

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import GradientAccumulationScheduler
from support.fits import (
    Loader,
    Model,
    fit,
)

from trainperf.core.phases import Tag


def test_accumulation_that_changes_while_training_is_followed(tmp_path: Path) -> None:
    """Groups of one, then of three, the last of them short; each loss is as it was returned."""

    class Constant(Model):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return 0.0 * self.loss(batch) + float(batch_idx + 1)

    schedule = GradientAccumulationScheduler({0: 1, 1: 3})
    ran = fit(tmp_path, Constant(), Loader(4), schedule, max_epochs=2)
    assert ran.micro_batches() == [1, 1, 1, 1, 3, 1]
    assert ran.tagged(Tag.PARTIAL_GROUP) == [5]
    assert ran.fact("loss") == [1.0, 2.0, 3.0, 4.0, 3.0, 4.0]
