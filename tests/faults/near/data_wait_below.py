"""Waiting for data takes some seven per cent of the step."""

from pathlib import Path

from faults.base import script
from faults.loads import AtOnce, Fields, Nap, Paced, fit, loader


@script()
def _train(out: Path, *, fixed: bool) -> None:
    fit(out, loader(AtOnce(Nap(0.007), steps=34)), module=Fields(Paced(0.110)))
