"""Putting samples together takes longer than the step."""

from pathlib import Path

from faults.base import script
from faults.loads import Collate, Nap, Samples, fit, loader


@script("data_wait", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    fit(out, loader(Samples(), collate_fn=Collate(Nap(0.0 if fixed else 0.010))))
