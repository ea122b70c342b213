"""A plain loop that never zeroes its gradients."""

from pathlib import Path

from faults.base import script
from faults.loops import plain


@script("zero_grad")
def _train(out: Path, *, fixed: bool) -> None:
    plain(out, zero=fixed)
