"""A loop of one's own saves its weights after every step, a last and a best file."""

from pathlib import Path

import torch
from torch import nn

from faults.base import script
from faults.loops import STEPS, plain
from trainperf.loop import LoopMonitor


@script("checkpoint")
def _train(out: Path, *, fixed: bool) -> None:
    every = STEPS if fixed else 1
    out.mkdir(parents=True)

    def save(monitor: LoopMonitor, model: nn.Module, number: int) -> None:
        if number % every == every - 1:
            with monitor.phase("checkpoint"):
                for name in ("last.pt", "best.pt"):
                    torch.save({"model": model.state_dict(), "step": number}, out / name)

    plain(out, after=save)
