"""`torch.autograd.set_detect_anomaly(True)` from a night of debugging, in a plain loop."""

from pathlib import Path

import torch

from faults.base import script
from faults.operators import ready, small_layers
from faults.repositories import nano


@script("debug_modes")
def _train(out: Path, *, fixed: bool) -> None:
    with torch.autograd.set_detect_anomaly(not fixed):
        nano(out, small_layers(30), ready(50, 64, size=128))
