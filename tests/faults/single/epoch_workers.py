"""Many short epochs, and the workers start anew for each."""

from pathlib import Path

from faults.base import Script
from faults.loads import Samples, fit, loader


EPOCHS = 10


def _train(out: Path, *, fixed: bool) -> None:
    dataset = Samples(steps=6)
    fit(out, loader(dataset, num_workers=2, persistent_workers=fixed), max_epochs=EPOCHS)


SCRIPT = Script(expected=("epoch_start",), train=_train)
