"""Large products, batches that are there already, a fused optimizer."""

from pathlib import Path

from faults.base import ready, script, train
from faults.models import WIDTH, Classifier


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Classifier(), ready(80, WIDTH))
