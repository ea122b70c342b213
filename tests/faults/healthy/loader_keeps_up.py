"""Batches take longer than the step, but three workers make them beforehand."""

from pathlib import Path

from faults.base import script
from faults.loads import AtOnce, Fields, Nap, Paced, fit, loader


@script()
def _train(out: Path, *, fixed: bool) -> None:
    dataset = AtOnce(Nap(0.150), steps=34)
    fit(out, loader(dataset, num_workers=3), module=Fields(Paced(0.110)))
