"""Loops that the overhead bench times: two Trainers and a plain one, of fixed work."""

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader

from scripts.bench.alternation import Stopwatch
from scripts.bench.checks import check
from scripts.bench.contenders import (
    LOOP_MONITOR,
    NOTHING,
    OUTSIDE,
    TIMESTAMPS,
    Contender,
    for_trainer,
)
from scripts.bench.text_loops import TEXT_LOOPS
from scripts.bench.timestamps import Timestamps
from trainperf.loop import LoopMonitor


class Setting(Protocol):
    """A loop whose steps are timed."""

    @property
    def name(self) -> str:
        """What `--setting` calls it."""
        ...

    @property
    def title(self) -> str:
        """What the table's heading calls it."""
        ...

    @property
    def takes_turns(self) -> bool:
        """Whether two of them may be under way in one process."""
        ...

    def contenders(self) -> Sequence[Contender]:
        """What can be attached to it; the first one is nothing."""
        ...

    def run(self, contender: Contender, watch: Stopwatch, scratch: Path) -> None:
        """Run the loop with the contender attached and the stopwatch in it."""
        ...


class _Model(pl.LightningModule):
    """Fixed work: one small layer, and *matmuls* products of 200 × 200 matrices."""

    def __init__(self, matmuls: int, watch: Stopwatch) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)
        self.work = torch.randn(200, 200)
        self.matmuls = matmuls
        self.watch = watch

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """A step of fixed work, with the stopwatch in it."""
        self.watch.at(batch_idx)
        for _ in range(self.matmuls):
            self.work @ self.work
        return _loss(self.layer, batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerLoop:
    """A `Trainer.fit` of one epoch: with all that a Trainer does by default, or without."""

    name: str
    title: str
    matmuls: int
    bare: bool

    @property
    def takes_turns(self) -> bool:
        """Rich shows one progress bar at a time."""
        return self.bare

    def contenders(self) -> Sequence[Contender]:
        """Everything that applies."""
        return for_trainer(has_logger=not self.bare)

    def run(self, contender: Contender, watch: Stopwatch, scratch: Path) -> None:
        """One fit."""
        trainer = self._trainer(contender, scratch)
        gc.collect()  # what an earlier fit left behind is not this one's cost
        trainer.fit(_Model(self.matmuls, watch), _loader(watch.needed))
        check(contender, scratch, watch.needed)

    def _trainer(self, contender: Contender, scratch: Path) -> pl.Trainer:
        usual = None if not self.bare else False
        return pl.Trainer(
            callbacks=contender.callbacks(scratch),
            profiler=contender.profiler,
            max_epochs=1,
            accelerator="cpu",
            default_root_dir=scratch,
            logger=usual,
            enable_checkpointing=usual,
            enable_progress_bar=usual,
            enable_model_summary=usual,
        )


class Returning(torch.nn.Module):
    """A layer that returns its loss and its logits by name, as models of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Both."""
        logits: torch.Tensor = self.layer(x)
        return {"loss": logits.pow(2).mean(), "logits": logits}


def linear() -> torch.nn.Module:
    """One layer."""
    return torch.nn.Linear(32, 32)


def deep() -> torch.nn.Module:
    """64 small ones."""
    return torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(64)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLoop:
    """A loop written by hand: forward, backward, optimizer."""

    name: str
    title: str
    model: Callable[[], torch.nn.Module] = linear
    loads: bool = True
    """Whether a `DataLoader` makes its batches; else they lie in a list."""
    takes_turns: bool = True

    def contenders(self) -> Sequence[Contender]:
        """Nothing, the least that any such instrument does, our monitor, and `trainperf run`."""
        return (NOTHING, TIMESTAMPS, LOOP_MONITOR, OUTSIDE)

    def run(self, contender: Contender, watch: Stopwatch, scratch: Path) -> None:
        """One epoch."""
        layer = self.model()
        loader: Iterable[torch.Tensor] = _loader(watch.needed)
        if not self.loads:
            loader = list(loader)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
        gc.collect()
        if contender is LOOP_MONITOR:
            with LoopMonitor(scratch).watch(layer, optimizer) as monitor:
                _measured(monitor, layer, optimizer, loader, watch)
        elif contender is TIMESTAMPS:
            _measured(Timestamps(), layer, optimizer, loader, watch)
        else:
            _plain(layer, optimizer, loader, watch)
        check(contender, scratch, watch.needed)


def _plain(
    layer: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Iterable[torch.Tensor],
    watch: Stopwatch,
) -> None:
    for step, batch in enumerate(loader):
        watch.at(step)
        loss = _loss(layer, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()


def _measured(
    monitor: LoopMonitor | Timestamps,
    layer: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Iterable[torch.Tensor],
    watch: Stopwatch,
) -> None:
    for step, batch in enumerate(monitor.batches(loader)):
        watch.at(step)
        with monitor.phase("forward"):
            loss = _loss(layer, batch)
        with monitor.phase("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        with monitor.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        monitor.end_step(loss)


def _loss(layer: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    output = layer(batch)
    loss: torch.Tensor = output["loss"] if isinstance(output, dict) else output.pow(2).mean()
    return loss


def _loader(batches: int) -> "DataLoader[torch.Tensor]":
    samples = torch.randn(batches * 4, 32)
    return DataLoader(samples, batch_size=4)  # type: ignore[arg-type]  # a tensor is a dataset


SETTINGS: tuple[Setting, ...] = (
    TrainerLoop(
        name="defaults",
        title="Trainer defaults: logger, progress bar, checkpoint, model summary",
        matmuls=4,
        bare=False,
    ),
    TrainerLoop(
        name="bare", title="Bare Trainer: no logger, no callback at all", matmuls=0, bare=True
    ),
    PlainLoop(name="plain", title="Plain PyTorch loop, three phases bracketed"),
    PlainLoop(name="linear", title="One layer, batches from a list", loads=False),
    PlainLoop(name="deep", title="64 layers, batches from a list", model=deep, loads=False),
    PlainLoop(name="dictionary", title="Loss and logits by name", model=Returning, loads=False),
    *TEXT_LOOPS,
)
