"""One worker needs 16 ms for a batch, and the step is over after eight."""

from pathlib import Path

from faults.base import script
from faults.loads import AtOnce, Nap, fit, loader


@script("data_wait", changes=("more_workers",))
def _train(out: Path, *, fixed: bool) -> None:
    fit(out, loader(AtOnce(Nap(0.016)), num_workers=3 if fixed else 1))
