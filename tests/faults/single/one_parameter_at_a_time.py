"""The optimizer updates two hundred small parameters one after the other."""

from pathlib import Path

from faults.base import script, train
from faults.models import Classifier
from faults.operators import adamw, ready, small_layers


@script("optimizer_not_fused")
def _train(out: Path, *, fixed: bool) -> None:
    optimizer = adamw(fused=True) if fixed else adamw(fused=False, foreach=False)
    train(out, Classifier(small_layers(), optimizer), ready(50, 64, size=64))
