"""What a claim is given: device, size, a time budget, and a measured loop to train in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from recipes.cases.processor import compiler
from trainperf.loop import LoopMonitor


Batch = tuple[Tensor, ...]
Loss = Callable[[nn.Module, Batch], Tensor]
Value = TypeVar("Value")

STEPS, AUDITED = 70, 50
"""Steps of a fit that trainperf reports on, and the one whose operators it looks at."""


@dataclass(frozen=True, kw_only=True)
class ClaimBench:
    """Where a claim runs, and how much of it."""

    out: Path
    """Folder of the run directories that it leaves."""
    small: bool = False
    """Toy sizes, for tests: nothing is to be learned from what is measured."""
    seconds: float = 1.6
    """Of measuring, for each claim."""

    @cached_property
    def device(self) -> str:
        """`cuda` where there is one."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    @property
    def compiles(self) -> bool:
        """Whether `torch.compile` has what it builds kernels with."""
        return self.device == "cuda" or bool(compiler())

    def pick(self, small: Value, full: Value) -> Value:
        """The toy size or the real one."""
        return small if self.small else full

    def random(self, *shape: int) -> Tensor:
        """Standard normal values on the device, the same in every run."""
        generator = torch.Generator().manual_seed(sum(shape))
        return torch.randn(*shape, generator=generator).to(self.device)

    def fit(self, name: str, training: "Training", batches: Sequence[Batch]) -> Path:
        """Train with everything measured and one step audited; the run directory."""
        monitor = LoopMonitor(self.out / name, report=False, machine=False, audit_at=AUDITED)
        monitor.watch(training.model, training.optimizer)
        with monitor:
            for batch in monitor.batches(batches[at % len(batches)] for at in range(STEPS)):
                with monitor.phase("forward"):
                    loss = training.loss(training.model, batch)
                with monitor.phase("backward"):
                    loss.backward()  # type: ignore[no-untyped-call]
                with monitor.phase("optimizer"):
                    training.optimizer.step()
                    training.optimizer.zero_grad()
                if training.after is not None:
                    training.after(loss)
                monitor.end_step(loss)
        if monitor.run is None:
            raise RuntimeError(f"{name}: the fit left no run directory; see the warning above")
        return monitor.run


@dataclass(frozen=True, kw_only=True)
class Training:
    """A model with its optimizer, and how a step is done."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Loss
    after: Callable[[Tensor], object] | None = None
    """Called with the loss at the end of each step."""

    def step(self, batch: Batch) -> Tensor:
        """Forward, backward, update; the loss, detached."""
        loss = self.loss(self.model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.after is not None:
            self.after(loss)
        return loss.detach()

    def accumulated(self, batch: Batch, parts: int) -> Tensor:
        """One update from the gradients of so many micro-batches; the mean loss, detached."""
        losses = []
        for rows in batch[0].chunk(parts):
            loss = self.loss(self.model, (rows,)) / parts
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        self.optimizer.step()
        self.optimizer.zero_grad()
        return torch.stack(losses).sum()


def sgd(model: nn.Module, loss: Loss, after: Callable[[Tensor], object] | None = None) -> Training:
    """Training with plain SGD, whose update is too cheap to matter."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    return Training(model=model, optimizer=optimizer, loss=loss, after=after)


def same(build: Callable[[], Value]) -> Value:
    """A model made from the same random numbers each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()
