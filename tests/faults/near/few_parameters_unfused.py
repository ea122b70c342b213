"""An update that is not fused, of eight tensors beside large products."""

from pathlib import Path

import torch

from faults.base import script, train
from faults.models import WIDTH, Classifier, perceptron
from faults.operators import ready


@script()
def _train(out: Path, *, fixed: bool) -> None:
    body = perceptron(3, WIDTH)
    made = Classifier(body, lambda own: torch.optim.SGD(own, 0.01, foreach=True))
    train(out, made, ready(50, WIDTH, size=256))
