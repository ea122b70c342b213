"""Large products, batches that are there already, a fused optimizer."""

from pathlib import Path

from faults.base import Script, ready, train
from faults.models import WIDTH, Classifier


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    train(out, Classifier(), ready(80, WIDTH))


SCRIPT = Script(train=_train)
