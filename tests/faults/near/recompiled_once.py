"""One length and then another: torch compiles for all lengths, once, as it should."""

from pathlib import Path

import torch

from faults.base import ready, script, train
from faults.compiled import Compiled
from faults.models import WIDTH


@script()
def _train(out: Path, *, fixed: bool) -> None:
    model = Compiled(length=lambda number: 256 - 8 * (number // 8), dynamic=None)
    model.body(torch.ones(256, WIDTH), 1)
    train(out, model, ready(80, WIDTH))
