"""A slow collate function in one worker, which starts anew for every short epoch."""

from pathlib import Path

from faults.base import Script
from faults.loads import Collate, Nap, Samples, fit, loader


EPOCHS = 8


def _train(out: Path, *, fixed: bool) -> None:
    source = loader(
        Samples(steps=8),
        collate_fn=Collate(Nap(0.0 if fixed else 0.025)),
        num_workers=1,
        persistent_workers=fixed,
    )
    fit(out, source, max_epochs=EPOCHS)


SCRIPT = Script(expected=("data_wait", "epoch_start"), train=_train, changes=("cheaper_sample",))
