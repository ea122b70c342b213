"""A body inside `DataParallel`, which on a CPU only passes everything on."""

from pathlib import Path

from torch import nn

from faults.base import script, train
from faults.calm import Calm, Ready, calm


@script("data_parallel")
def _train(out: Path, *, fixed: bool) -> None:
    body = calm(0.02) if fixed else nn.DataParallel(calm(0.02))
    train(out, Calm(body), Ready(50), audit_at=None)
