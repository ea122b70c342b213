"""Models that are compiled while they train: what surrounds the compiler is paid for beforehand."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from faults.models import WIDTH, Classifier, perceptron
from faults.stand_in import compute


class Compiled(Classifier):
    """A classifier whose forward is compiled; each batch is cut to a length and goes at a level.

    Args:
        length: From the number of the batch to how many of its rows are used.
        level: From the number of the batch to a Python number that forward is given.
        prints: Whether forward prints.
        backend: Of `torch.compile`; `None` leaves it as it is written.
        dynamic: As `torch.compile` takes it.
        width: Of the rows.
        pause_s: Time in every step that is the same on every machine.
    """

    def __init__(
        self,
        *,
        length: Callable[[int], int] = lambda number: 256,
        level: Callable[[int], int] = lambda number: 1,
        prints: bool = False,
        backend: Any = "eager",
        dynamic: bool | None = False,
        width: int = WIDTH,
        pause_s: float = 0.0,
    ) -> None:
        super().__init__(perceptron(width=width))
        fresh()
        self._length, self._level, self._pause_s = length, level, pause_s
        body = Talking(self.body) if prints else Levelled(self.body)
        self.body = body
        if backend is not None:
            self.body.compile(backend=backend, dynamic=dynamic)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a part of the batch."""
        rows, labels = batch
        compute(self._pause_s)
        most = self._length(batch_idx)
        scores = self.body(rows[:most], self._level(batch_idx))
        return functional.cross_entropy(scores, labels[:most])


class Levelled(nn.Module):
    """A body whose scores depend on a Python number."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.inner = body

    def forward(self, rows: Tensor, level: int) -> Tensor:
        """Scores at that level."""
        return self.inner(rows) * (1 + level / 1000)


class Talking(Levelled):
    """Prints in the middle of it."""

    def forward(self, rows: Tensor, level: int) -> Tensor:
        """The same scores."""
        scores = self.inner(rows)
        print(end="")  # noqa: T201 the fault
        return scores * (1 + level / 1000)


def fresh() -> None:
    """Nothing is compiled yet, but the compiler is loaded."""
    torch._dynamo.reset()
    torch.compile(torch.sin, backend="eager")(torch.ones(2))


def every_eighth(start: int, step: int, most: int = 6) -> Callable[[int], int]:
    """A number that changes with every eighth batch, to *most* different values."""
    return lambda number: start + step * min(number // 8, most - 1)
