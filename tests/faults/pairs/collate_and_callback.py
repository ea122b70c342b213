"""A slow collate function, and a callback that sleeps after every batch."""

from pathlib import Path

from faults.base import script
from faults.hooks import sleeping
from faults.loads import Collate, Nap, Samples, fit, loader


@script("data_wait", "callbacks", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    collate = Collate(Nap(0.0 if fixed else 0.012))
    callback = sleeping(0.0 if fixed else 0.012)
    fit(out, loader(Samples(), collate_fn=collate), callbacks=[callback])
