"""Backward takes longer at random: nothing to fix, and nothing to conclude."""

import random
from pathlib import Path
from typing import Any

from torch import Tensor

from faults.base import ready, script, train
from faults.models import WIDTH, Classifier
from faults.stand_in import compute


class Noisy(Classifier):
    """Sleeps for a time that nobody can foresee."""

    def __init__(self, most_s: float) -> None:
        super().__init__()
        self._most_s = most_s
        self._random = random.Random(0)  # noqa: S311 not for secrets

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss."""
        loss = super().training_step(batch, batch_idx)
        loss.register_hook(self._wait)
        return loss

    def _wait(self, gradient: Tensor) -> None:
        compute(self._random.uniform(0, self._most_s))


@script("noisy_run", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Noisy(0.0 if fixed else 0.03), ready(80, WIDTH, 128))
