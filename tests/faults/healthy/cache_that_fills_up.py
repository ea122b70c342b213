"""The loop keeps a copy of each of its eight batches when it first sees it, and then no more."""

from pathlib import Path

import torch
from torch import Tensor, nn

from faults.base import script
from faults.loops import STEPS, plain
from trainperf.loop import LoopMonitor


@script()
def _train(out: Path, *, fixed: bool) -> None:
    cache: dict[int, Tensor] = {}

    def remember(monitor: LoopMonitor, model: nn.Module, step: int) -> None:
        if step < STEPS // 3:
            cache[step] = torch.ones(2**19)

    plain(out, after=remember)
