"""The norm of every gradient is logged before every update; the twin does so every fiftieth."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn

from faults.base import ready, script, train
from faults.models import Classifier


class Watched(Classifier):
    """As the documentation of Lightning's hooks shows it."""

    every = 1

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """A value for each parameter, and their total."""
        del optimizer
        if self.global_step % self.every:
            return
        norms = {
            f"grad/{name}": weight.grad.norm(2)
            for name, weight in self.named_parameters()
            if weight.grad is not None
        }
        norms["grad/total"] = torch.stack(list(norms.values())).norm(2)
        self.log_dict(norms)


@script("callbacks")
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(128, 128), nn.ReLU()) for _ in range(16)]
    model = Watched(nn.Sequential(*layers, nn.Linear(128, 10)))
    model.every = 50 if fixed else 1
    train(out / "run", model, ready(60, 128), logger=CSVLogger(out / "logs"))
