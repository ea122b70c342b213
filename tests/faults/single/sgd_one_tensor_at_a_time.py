"""SGD with momentum and `foreach=False`, as older tutorials and some configurations have it."""

from pathlib import Path

import torch

from faults.base import script, train
from faults.models import Classifier
from faults.operators import ready, small_layers


@script("optimizer_not_fused")
def _train(out: Path, *, fixed: bool) -> None:
    how = {"fused": True} if fixed else {"foreach": False}
    model = Classifier(
        small_layers(80, 48), lambda own: torch.optim.SGD(own, 1e-3, momentum=0.9, **how)
    )
    train(out, model, ready(50, 64, size=128))
