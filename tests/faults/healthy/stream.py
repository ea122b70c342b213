"""Samples come in turn, and fast."""

from pathlib import Path

from faults.base import script
from faults.loads import Fields, InTurn, Paced, fit, loader


@script()
def _train(out: Path, *, fixed: bool) -> None:
    fit(out, loader(InTurn()), module=Fields(Paced(0.030)))
