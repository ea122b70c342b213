"""One worker needs 16 ms for a batch, and the step is over after eight."""

from pathlib import Path

from faults.base import Script
from faults.loads import AtOnce, Nap, fit, loader


def _train(out: Path, *, fixed: bool) -> None:
    fit(out, loader(AtOnce(Nap(0.016)), num_workers=3 if fixed else 1))


SCRIPT = Script(expected=("data_wait",), train=_train, changes=("more_workers",))
