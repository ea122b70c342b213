"""One batch in thirty is far too long: its pairwise scores do not fit into any memory."""

import contextlib
from pathlib import Path
from typing import Any

from torch import Tensor

from faults.base import ready, script, train
from faults.models import WIDTH, Classifier


class Pairwise(Classifier):
    """Compares all rows of a batch with each other.

    Args:
        at: Number of the batch that is repeated beyond all measure; none is negative.
    """

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss, and a penalty for rows that are alike."""
        rows, _ = batch
        # 2^38 rows of 512 fp32: more than an address can name, so nothing is allocated at all.
        long = 2**38 // len(rows) if batch_idx == self._at else 1
        alike = self.body(rows).repeat(long, WIDTH // 10).mean()
        return super().training_step(batch, batch_idx) + alike


@script("out_of_memory", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    with contextlib.suppress(RuntimeError):
        train(out, Pairwise(-1 if fixed else 30), ready(50, WIDTH))
