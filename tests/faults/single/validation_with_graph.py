"""A plain loop validates its model without `no_grad` and sums up the losses."""

from pathlib import Path

import torch
from torch import nn

from faults.base import script
from faults.loops import ROWS, plain
from faults.models import WIDTH
from trainperf.loop import LoopMonitor


@script("validation")
def _train(out: Path, *, fixed: bool) -> None:
    rows = torch.randn(ROWS, WIDTH)

    def validate(monitor: LoopMonitor, model: nn.Module, step: int) -> None:
        if step % 20 != 19:
            return
        with monitor.phase("validation"), torch.set_grad_enabled(not fixed):
            sum(model(rows).mean() for _ in range(6))

    plain(out, after=validate)
