"""Plain loops for the corpus: the model and the batches of the others, without a framework."""

from collections.abc import Callable, Iterator
from pathlib import Path

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


def plain(
    out: Path,
    step: Step = learn,
    *,
    zero: bool = True,
    after: Callable[[LoopMonitor, nn.Module, int], None] = lambda *_: None,
    sample: Callable[[], None] = lambda: None,
    steps: int = STEPS,
) -> None:
    """Train below *out*.

    Args:
        out: Where the run is written.
        step: What a step does.
        zero: Whether gradients are zeroed.
        after: Called after each step, with its number.
        sample: Called for each batch, where the loop waits for it.
        steps: How many.
    """
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4, fused=True)
    monitor = LoopMonitor(out, report=False).watch(model, optimizer)
    batches = [(torch.randn(ROWS, WIDTH), torch.randint(0, 10, (ROWS,))) for _ in range(8)]

    def loaded() -> Iterator[tuple[Tensor, Tensor]]:
        for number in range(steps):
            sample()
            yield batches[number % 8]

    number = 0
    with monitor:
        for rows, labels in monitor.batches(loaded()):
            if zero:
                optimizer.zero_grad()
            with monitor.phase("forward"):
                loss = step(model, rows, labels)
            with monitor.phase("optimizer"):
                optimizer.step()
            monitor.end_step(loss.detach())
            after(monitor, model, number)
            number += 1
