"""Gradients are kept as numpy copies, and batches take long to make."""

import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import nn

from faults.base import script
from faults.loops import LONG, plain, slowly
from trainperf.loop import LoopMonitor


@script("leak", "data_wait", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    history: list[npt.NDArray[np.float32]] = []

    def remember(monitor: LoopMonitor, model: nn.Module, step: int) -> None:
        gradient = next(model.parameters()).grad
        assert gradient is not None
        if fixed:
            history.clear()
        history.append(gradient.numpy().copy())

    plain(
        out,
        slowly,
        after=remember,
        sample=lambda: time.sleep(0 if fixed else 0.04),
        steps=LONG,
    )
