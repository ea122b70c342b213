"""AdamW with foreach=False over the many small tensors of a deep model."""

from pathlib import Path

import torch

from faults.base import script
from faults.operators import ready, small_layers
from faults.repositories import nano


@script("optimizer_not_fused")
def _train(out: Path, *, fixed: bool) -> None:
    options = {"fused": True} if fixed else {"foreach": False}
    nano(
        out,
        small_layers(60, 48),
        ready(50, 64, size=64),
        optimizer=lambda own: torch.optim.AdamW(own, 1e-4, weight_decay=0.1, **options),
    )
