"""The gradient norm is summed in Python, one `.item()` per parameter, before every update."""

from pathlib import Path

import torch
from torch import nn

from faults.base import script
from faults.operators import ready, small_layers
from faults.repositories import nano


def _by_item(model: nn.Module) -> None:
    total = 0.0
    for parameter in model.parameters():
        if parameter.grad is not None:
            total += parameter.grad.data.norm(2).item() ** 2
    scale = min(1.0, 1.0 / (total**0.5 + 1e-6))
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.data.mul_(scale)


def _at_once(model: nn.Module) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


@script("hidden_syncs")
def _train(out: Path, *, fixed: bool) -> None:
    update = _at_once if fixed else _by_item
    nano(out, small_layers(80), ready(60, 64, size=64), before_update=update)
