"""Putting samples together takes longer than the step."""

from pathlib import Path

from faults.base import Script
from faults.loads import Collate, Nap, Samples, fit, loader


def _train(out: Path, *, fixed: bool) -> None:
    fit(out, loader(Samples(), collate_fn=Collate(Nap(0.0 if fixed else 0.010))))


SCRIPT = Script(expected=("data_wait",), train=_train, changes=("cheaper_sample",))
