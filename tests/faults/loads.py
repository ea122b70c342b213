"""Loaders with planted costs, and a model whose step takes its time without the processor.

A step that only sleeps leaves the processor to the loader: what is planted there comes back though
others use the machine.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from support.fits import QUIET
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from faults.models import Classifier
from faults.stand_in import compute
from trainperf.lightning import TrainPerf


STEPS, ROWS, WIDTH = 60, 32, 64
STEP_S = 0.008

Make = Callable[[int], Any]


class Paced(nn.Module):
    """A layer that takes as long as a device would."""

    def __init__(self, seconds: float = STEP_S, width: int = WIDTH) -> None:
        super().__init__()
        self.layer = nn.Linear(width, 10)
        self.seconds = seconds

    def forward(self, rows: Tensor) -> Tensor:
        """Scores."""
        compute(self.seconds)
        scores: Tensor = self.layer(rows)
        return scores


class Fields(Classifier):
    """Takes rows that come in parts, under whatever names, and leaves the rest of the batch be."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of the rows put together."""
        if isinstance(batch, dict):
            labels = batch.pop("label")
            batch = (torch.cat(list(batch.values()), dim=1), labels)
        return super().training_step(batch[:2], batch_idx)


class Samples(Dataset[Any]):
    """Rows and labels, each after something that costs."""

    def __init__(self, cost: Callable[[], object] | None = None, steps: int = STEPS) -> None:
        self.cost = cost
        self.number = steps * ROWS
        self.rows = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, key: int) -> Any:
        if self.cost is not None:
            self.cost()
        return self.rows[key % ROWS], key % 10


class AtOnce(Samples):
    """All samples of a batch after one cost."""

    def __getitems__(self, keys: Sequence[int]) -> list[Any]:
        if self.cost is not None:
            self.cost()
        return [(self.rows[key % ROWS], key % 10) for key in keys]


class InTurn(IterableDataset[Any]):
    """The same, without keys."""

    def __init__(self, steps: int = STEPS) -> None:
        self.samples = Samples(steps=steps)

    def __iter__(self) -> Iterator[Any]:
        return (self.samples[key] for key in range(len(self.samples)))


class Nap:
    """Sleeps: waits for something far away."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> None:
        """Once."""
        time.sleep(self.seconds)


class Collate:
    """The default one after something that costs."""

    def __init__(self, cost: Callable[[], object]) -> None:
        self.cost = cost

    def __call__(self, samples: list[Any]) -> Any:
        """Of a batch."""
        self.cost()
        return default_collate(samples)


def fit(out: Path, loader: "DataLoader[Any]", **trainer: Any) -> None:
    """A fit of a paced model."""
    measured = TrainPerf(dirpath=str(out), report=False)
    callbacks = [*trainer.pop("callbacks", []), measured]
    module = trainer.pop("module", None) or Fields(Paced())
    pl.Trainer(**{**QUIET, **trainer}, callbacks=callbacks).fit(module, loader)


def loader(dataset: "Dataset[Any]", **options: Any) -> "DataLoader[Any]":
    """Batches of the usual size."""
    return DataLoader(dataset, batch_size=ROWS, **options)
