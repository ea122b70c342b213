"""Work that is a sleep: what others do on the machine hardly changes how long it takes."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from faults.models import Validated
from faults.stand_in import compute


WIDTH = 16
ROWS = 8


class Sleep(nn.Module):
    """Passes its input on after a while."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def forward(self, rows: Tensor) -> Tensor:
        """The same rows, later."""
        compute(self._seconds)
        return rows


def calm(seconds: float = 0.006) -> nn.Sequential:
    """Ten scores that take so long."""
    return nn.Sequential(Sleep(seconds), nn.Linear(WIDTH, 10))


class Ready:
    """So many batches, made already."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._batch = torch.randn(ROWS, WIDTH), torch.randint(0, 10, (ROWS,))

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(self._number):
            yield self._batch


class Calm(Validated):
    """Sleeps in forward.

    Args:
        body: What it trains, if not the ordinary one.
        after_batch: Called with the module and the number of the batch after each of them.
    """

    def __init__(
        self,
        body: nn.Module | None = None,
        after_batch: Callable[["Calm", int], None] | None = None,
    ) -> None:
        super().__init__(body or calm())
        self._after_batch = after_batch

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """What the script does there."""
        if self._after_batch is not None:
            self._after_batch(self, batch_idx)
