"""Workers without persistent_workers, and an epoch of eight batches."""

from pathlib import Path

from faults.base import script
from faults.loads import Nap, Samples, fit, loader


@script("epoch_start")
def _train(out: Path, *, fixed: bool) -> None:
    dataset = Samples(Nap(20e-6), steps=8)
    fit(out, loader(dataset, num_workers=1, persistent_workers=fixed), max_epochs=8)
