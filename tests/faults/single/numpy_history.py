"""A plain loop appends a numpy copy of its largest gradient in every step."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import nn

from faults.base import script
from faults.loops import LONG, plain, slowly
from trainperf.loop import LoopMonitor


@script("leak", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    history: list[npt.NDArray[np.float32]] = []

    def remember(monitor: LoopMonitor, model: nn.Module, step: int) -> None:
        gradient = next(model.parameters()).grad
        assert gradient is not None
        if fixed:
            history.clear()
        history.append(gradient.numpy().copy())

    plain(out, slowly, after=remember, steps=LONG)
