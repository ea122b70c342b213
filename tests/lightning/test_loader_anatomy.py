"""A fit looks into its loader before the first step, if it was asked to, and trains the same."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from support.fits import Loader, Model, read, trainer
from support.loaders import FromFile, Rows
from torch.utils.data import DataLoader

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.loader import LoaderAnatomy
from trainperf.lightning import TrainPerf


class Recording(Model):
    """Remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """As its base."""
        self.seen.append(batch.clone())
        return super().training_step(batch, batch_idx)


def fitted(tmp_path: Path, loader: object, model: Model | None = None, **asked: Any) -> Path:
    """The run directory of a fit."""
    root = Path(tempfile.mkdtemp(dir=tmp_path))
    perf = TrainPerf(dirpath=str(root), report=False, **asked)
    trainer(root, perf).fit(model or Model(), loader)
    return root / "trainperf"


def anatomy_in(run: Path) -> LoaderAnatomy | None:
    """What the fit wrote of its loader."""
    return read_document(LoaderAnatomy, run)


def test_a_fit_that_was_looked_into_trains_as_one_that_was_not(tmp_path: Path) -> None:
    """The same batches in the same order, the same weights."""
    weights, seen = [], []
    for asked in (False, True):
        torch.manual_seed(0)
        model = Recording()
        loader = DataLoader(Rows(number=40), batch_size=4, shuffle=True, num_workers=1)
        fitted(tmp_path, loader, model, loader_anatomy=asked)
        weights.append(model.layer.weight.detach().clone())
        seen.append(torch.cat(model.seen))

    assert torch.equal(*seen)
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("kind", "why"),
    [("list", "Loader: only a torch"), ("file", "FromFile: holds an open file")],
)
def test_why_a_loader_was_not_looked_into_is_noted(tmp_path: Path, kind: str, why: str) -> None:
    """And training goes on with every sample."""
    path = tmp_path / "lines.txt"
    path.write_text("a\nb\nc\n")
    dataset = FromFile(path)
    model = Recording()
    loader = Loader(3) if kind == "list" else DataLoader(dataset, 1, collate_fn=_as_rows)

    run = fitted(tmp_path, loader, model, loader_anatomy=True)
    dataset.source["lines"].close()

    totals = read(run).totals
    assert totals.notes["loader"].startswith(f"not looked into: {why}")
    assert totals.faults == {}
    assert len(model.seen) == 3


def _as_rows(lines: list[str]) -> torch.Tensor:
    return torch.full((len(lines), 4), float(ord(lines[0][0])))


def test_a_fault_while_looking_does_not_stop_training(tmp_path: Path) -> None:
    """A dataset that works in the training process only."""
    dataset = _Here()

    run = fitted(tmp_path, DataLoader(dataset, batch_size=4), loader_anatomy=True)

    totals = read(run).totals
    assert "not in a child" in totals.faults["loader anatomy"]
    assert len(read(run).steps) == 5


class _Here(Rows):
    def __init__(self) -> None:
        super().__init__(number=20)
        self.process = os.getpid()

    def __getitem__(self, key: int) -> torch.Tensor:
        if os.getpid() != self.process:
            raise RuntimeError("not in a child")
        return super().__getitem__(key)
