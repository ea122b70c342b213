"""The scores are printed in every step, all of them."""

import contextlib
import io
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from faults.base import ready, script, train
from faults.models import WIDTH, Classifier


class Printing(Classifier):
    """Writes its scores down as text."""

    def __init__(self, *, prints: bool) -> None:
        super().__init__()
        self._prints = prints

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss."""
        rows, labels = batch
        scores = self.body(rows)
        if self._prints:
            print(scores)  # noqa: T201 the fault
        return functional.cross_entropy(scores, labels)


@script("python_in_step")
def _train(out: Path, *, fixed: bool) -> None:
    torch.set_printoptions(threshold=10_000)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            train(out, Printing(prints=not fixed), ready(40, WIDTH))
    finally:
        torch.set_printoptions(profile="default")
