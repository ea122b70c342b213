"""Twenty values in every step, and the collector in every fourth."""

import gc
from pathlib import Path
from typing import Any

from torch import Tensor

from faults.base import ready, script, train
from faults.logs import Logs, Nowhere
from faults.models import WIDTH


class Both(Logs):
    """Logs, and collects garbage in every fourth batch."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss."""
        loss = super().training_step(batch, batch_idx)
        if batch_idx % 4 == 3:
            gc.collect()
        return loss


@script("garbage", "logging", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    model = Logs(20, every=50) if fixed else Both(20)
    steps = 50 if fixed else 1
    loader = ready(64, WIDTH)
    gc.freeze()
    held = [[number] for number in range(300_000)]
    try:
        train(out, model, loader, logger=Nowhere(), log_every_n_steps=steps)
    finally:
        gc.unfreeze()
        held.clear()
