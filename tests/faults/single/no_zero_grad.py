"""A plain loop that never zeroes its gradients."""

from pathlib import Path

from faults.base import Script
from faults.loops import plain


def _train(out: Path, *, fixed: bool) -> None:
    plain(out, zero=fixed)


SCRIPT = Script(expected=("zero_grad",), train=_train)
