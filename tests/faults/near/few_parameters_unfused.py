"""An update that is not fused, of eight tensors beside large products."""

from pathlib import Path

import torch

from faults.base import Script, train
from faults.models import WIDTH, Classifier, perceptron
from faults.operators import ready


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    body = perceptron(3, WIDTH)
    made = Classifier(body, lambda own: torch.optim.SGD(own, 0.01, foreach=True))
    train(out, made, ready(50, WIDTH, size=256))


SCRIPT = Script(train=_train)
