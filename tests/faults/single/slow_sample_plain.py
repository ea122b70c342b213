"""Samples take long to make, in a loop without a framework."""

from pathlib import Path

from faults.base import script
from faults.loads import Nap, Paced, Samples, loader
from faults.loops import plain


@script("data_wait", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    source = loader(Samples(Nap(0.0 if fixed else 300e-6)))
    plain(out, model=Paced(), source=source, loader_anatomy=True)
