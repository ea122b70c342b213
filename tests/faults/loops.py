"""Plain loops for the corpus: the model and the batches of the others, without a framework."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from faults.models import WIDTH, perceptron
from faults.stand_in import compute
from trainperf.loop import LoopMonitor


STEPS = 80
ROWS = 256

Step = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""From the model, rows and labels to the loss, whose backward was called."""


LONG, PAUSE_S = 330, 0.095
"""Steps and the pause in each with which a run lasts 32 s: fewer show no leak."""


def learn(model: nn.Module, rows: Tensor, labels: Tensor) -> Tensor:
    """Forward and backward of one step."""
    loss = functional.cross_entropy(model(rows), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def slowly(model: nn.Module, rows: Tensor, labels: Tensor) -> Tensor:
    """The same, in a tenth of a second."""
    compute(PAUSE_S)
    return learn(model, rows, labels)


def batches(
    steps: int = STEPS, sample: Callable[[], None] = lambda: None
) -> Iterator[tuple[Tensor, Tensor]]:
    """The same eight again and again, each after something that the loop waits for."""
    ready = [(torch.randn(ROWS, WIDTH), torch.randint(0, 10, (ROWS,))) for _ in range(8)]
    for number in range(steps):
        sample()
        yield ready[number % 8]


def plain(
    out: Path,
    step: Step = learn,
    *,
    model: nn.Module | None = None,
    source: Iterable[tuple[Tensor, Tensor]] | None = None,
    zero: bool = True,
    after: Callable[[LoopMonitor, nn.Module, int], None] = lambda *_: None,
    **monitored: Any,
) -> None:
    """Train below *out*.

    Args:
        out: Where the run is written.
        step: What a step does.
        model: What it trains, if not the ordinary one.
        source: Batches, if not `batches`.
        zero: Whether gradients are zeroed.
        after: Called after each step, with its number.
        monitored: Options of the monitor.
    """
    model = model or perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4, fused=True)
    monitor = LoopMonitor(out, report=False, **monitored).watch(model, optimizer)
    with monitor:
        for number, (rows, labels) in enumerate(monitor.batches(source or batches())):
            if zero:
                optimizer.zero_grad()
            with monitor.phase("forward"):
                loss = step(model, rows, labels)
            with monitor.phase("optimizer"):
                optimizer.step()
            monitor.end_step(loss.detach())
            after(monitor, model, number)
