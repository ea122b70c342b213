"""What the identity of a Lightning fit says that only its batches can tell."""

from pathlib import Path

import torch
from support.fits import Loader, Model, trainer

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.lightning import TrainPerf


def test_the_sequence_length_is_the_first_batchs(tmp_path: Path) -> None:
    """Padding included."""
    batch = {"x": torch.ones(2, 4), "attention_mask": torch.ones(2, 11, dtype=torch.int64)}
    trainer(tmp_path, TrainPerf(report=False)).fit(Model(), Loader(4, batch=batch))

    summary = summarize(Run.open(tmp_path / "trainperf"))

    assert summary.run.config["sequence_length"] == 11
    assert summary.run.config["accumulate_grad_batches"] == 1
    assert summary.run.config["precision"] == "32-true"
