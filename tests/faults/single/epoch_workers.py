"""Many short epochs, and the workers start anew for each."""

from pathlib import Path

from faults.base import script
from faults.loads import Samples, fit, loader


EPOCHS = 10


@script("epoch_start")
def _train(out: Path, *, fixed: bool) -> None:
    dataset = Samples(steps=6)
    fit(out, loader(dataset, num_workers=2, persistent_workers=fixed), max_epochs=EPOCHS)
