"""A perceptron under a fused AdamW, whose update is small beside its products."""

from pathlib import Path

from faults.base import script, train
from faults.models import WIDTH, Classifier, perceptron
from faults.operators import adamw, ready


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Classifier(perceptron(), adamw(fused=True)), ready(50, WIDTH, size=256))
