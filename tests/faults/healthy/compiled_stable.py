"""Compiled once, before the fit, for the one shape that comes."""

from pathlib import Path

import torch

from faults.base import ready, script, train
from faults.compiled import Compiled
from faults.models import WIDTH


@script()
def _train(out: Path, *, fixed: bool) -> None:
    model = Compiled()
    model.body(torch.ones(256, WIDTH), 1)
    train(out, model, ready(80, WIDTH))
