"""Compiled anew for every length, and samples take long to make."""

from pathlib import Path

from torch.utils.data import DataLoader

from faults.base import script, train
from faults.compiled import Compiled, every_eighth
from faults.single.slow_sample import Slow


@script("data_wait", "recompiles", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    length = (lambda number: 256) if fixed else every_eighth(200, 8)
    loader = DataLoader(Slow(0.0 if fixed else 100e-6), batch_size=256)
    train(out, Compiled(length=length), loader)
