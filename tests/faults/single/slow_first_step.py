"""The first forward prepares for eleven seconds what the later ones use."""

import time
from pathlib import Path

from torch import Tensor, nn

from faults.base import script, train
from faults.calm import Calm, Ready, calm


class Prepares(nn.Module):
    """Passes its input on, the first time after a long while."""

    def __init__(self) -> None:
        super().__init__()
        self._ready = False

    def forward(self, rows: Tensor) -> Tensor:
        """The same rows."""
        if not self._ready:
            time.sleep(11.0)
            self._ready = True
        return rows


@script("first_step")
def _train(out: Path, *, fixed: bool) -> None:
    body = calm() if fixed else nn.Sequential(Prepares(), *calm())
    train(out, Calm(body), Ready(80), audit_at=None)
