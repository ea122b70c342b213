"""An optimizer keeps a matrix with a row and a column for every parameter."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from faults.base import ready, script, train
from faults.models import Classifier, perceptron


class FullMatrix(torch.optim.Optimizer):
    """Preconditions each tensor with the products of all its elements."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Any:  # type: ignore[override]
        """The state is made with the first update, as optimizers do."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                size = parameter.numel()
                if "products" not in self.state[parameter]:
                    # From 5.9 million parameters on that is more than an address can name.
                    self.state[parameter]["products"] = torch.empty(size, size)
        return loss


@script("out_of_memory", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    width = 2560
    model = Classifier(perceptron(2, width), optimizer=None if fixed else FullMatrix)
    with contextlib.suppress(RuntimeError):
        train(out, model, ready(4, width, 64), audit_at=None)
