"""`val_check_interval=8` over a held-out year of a forecast; the twin validates once an epoch."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from faults.base import script, train


HOURS, SERIES, STEPS = 48, 8, 48


class Forecast(pl.LightningModule):
    """The next hour of all series, by a recurrent network over two days."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(SERIES, 48, batch_first=True)
        self.out = nn.Linear(48, SERIES)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The error of the last hour."""
        del batch_idx
        hidden, _ = self.recurrent(batch[:, :-1])
        return functional.mse_loss(self.out(hidden[:, -1]), batch[:, -1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """The same of what it has never trained on."""
        self.log("error", self.training_step(batch, batch_idx))

    def val_dataloader(self) -> Any:
        """Twelve batches."""
        return _windows(12, 64)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """A fused one."""
        return torch.optim.Adam(self.parameters(), 1e-3, fused=True)


def _windows(number: int, rows: int) -> "DataLoader[Tensor]":
    hours = torch.arange(number * rows + HOURS)[:, None] / torch.arange(3, 3 + SERIES)
    noise = torch.randn(hours.shape, generator=torch.Generator().manual_seed(0))
    windows = (hours.sin() + 0.1 * noise).unfold(0, HOURS + 1, 1).transpose(1, 2)
    whole: Any = [windows[rows * at : rows * (at + 1)].contiguous() for at in range(number)]
    return DataLoader(whole, batch_size=None)


@script("validation")
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    every = STEPS if fixed else 8
    train(out, Forecast(), _windows(STEPS, 32), audit_at=None, val_check_interval=every)
