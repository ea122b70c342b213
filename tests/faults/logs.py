"""A model that logs values, and a logger that keeps none."""

from argparse import Namespace
from typing import Any

from lightning.pytorch.loggers import Logger
from torch import Tensor

from faults.models import Classifier


class Logs(Classifier):
    """Logs so many values in every so many batches."""

    def __init__(self, values: int, *, every: int = 1) -> None:
        super().__init__()
        self._values, self._every = values, every

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss."""
        loss = super().training_step(batch, batch_idx)
        for number in range(self._values if batch_idx % self._every == 0 else 0):
            self.log(f"value{number}", loss.detach())
        return loss


class Nowhere(Logger):
    """Takes everything and keeps nothing."""

    @property
    def name(self) -> str:
        """Of no meaning."""
        return "nowhere"

    @property
    def version(self) -> str:
        """Of no meaning."""
        return "0"

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Nothing."""

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any) -> None:
        """Nothing."""
