"""A loop of one's own evaluates twenty batches after every tenth step."""

from pathlib import Path

import torch
from torch import nn

from faults.base import script
from faults.loops import ROWS, STEPS, plain
from faults.models import WIDTH
from trainperf.loop import LoopMonitor


@script("validation")
def _train(out: Path, *, fixed: bool) -> None:
    every = STEPS if fixed else 10
    held_out = [torch.randn(ROWS, WIDTH) for _ in range(20)]

    def evaluate(monitor: LoopMonitor, model: nn.Module, number: int) -> None:
        if number % every == every - 1:
            with monitor.phase("validation"), torch.no_grad():
                torch.stack([model(rows).mean() for rows in held_out])

    plain(out, after=evaluate)
