"""A module that steps its scheduler after every batch, under accumulation by Lightning."""

from pathlib import Path
from typing import Any

import torch

from faults.base import script, train
from faults.calm import Calm, Ready


MICRO_BATCHES = 3


class Scheduled(Calm):
    """A schedule by the epoch, as far as Lightning knows."""

    def configure_optimizers(self) -> Any:
        """One optimizer, one scheduler."""
        optimizer = super().configure_optimizers()
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1000)]


@script("scheduler_per_micro_batch")
def _train(out: Path, *, fixed: bool) -> None:
    def step_it(module: Calm, batch: int) -> None:
        if not fixed or (batch + 1) % MICRO_BATCHES == 0:
            module.lr_schedulers().step()

    module = Scheduled(after_batch=step_it)
    train(out, module, Ready(150), accumulate_grad_batches=MICRO_BATCHES, audit_at=None)
