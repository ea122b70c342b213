"""Gradients are kept as numpy copies, and batches take long to make."""

import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import nn

from faults.base import script
from faults.loops import LONG, batches, plain, slowly
from trainperf.loop import LoopMonitor


@script("leak", "data_wait", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    history: list[npt.NDArray[np.float32]] = []

    def remember(monitor: LoopMonitor, model: nn.Module, step: int) -> None:
        gradient = next(model.parameters()).grad
        if fixed:
            history.clear()
        history.append(gradient.numpy().copy())

    source = batches(LONG, lambda: time.sleep(0 if fixed else 0.04))
    plain(out, slowly, after=remember, source=source)
