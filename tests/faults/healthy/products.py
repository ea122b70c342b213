"""Large products, batches that cost nothing, a fused optimizer."""

from pathlib import Path

from faults.base import Script, batches, train
from faults.models import WIDTH, Classifier


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    train(out, Classifier(), batches(80, WIDTH, size=256))


SCRIPT = Script(train=_train)
