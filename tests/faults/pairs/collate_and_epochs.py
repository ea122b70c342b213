"""A slow collate function in one worker, which starts anew for every short epoch."""

from pathlib import Path

from faults.base import script
from faults.loads import Collate, Nap, Samples, fit, loader


EPOCHS = 8


@script("data_wait", "epoch_start", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    source = loader(
        Samples(steps=8),
        collate_fn=Collate(Nap(0.0 if fixed else 0.025)),
        num_workers=1,
        persistent_workers=fixed,
    )
    fit(out, source, max_epochs=EPOCHS)
