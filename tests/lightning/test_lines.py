"""Planted time in a fit: its hook's line comes back, and the option is heard."""

import sys
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from support.fits import QUIET, Loader, Model

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.lightning import TrainPerf
from trainperf.recording import line_sampler as sampler


pytestmark = pytest.mark.filterwarnings("ignore")


class Histograms(pl.Callback):
    """Works in every step, in Python."""

    def on_train_batch_end(self, *_: Any) -> None:
        """For ten milliseconds."""
        began = time.perf_counter()
        while time.perf_counter() - began < 10e-3:
            torch.ones(64).histc()


def trained(path: Path, perf: pl.Callback, batches: int) -> Summary:
    """The run of a fit with that callback."""
    pl.Trainer(**QUIET, callbacks=[perf, Histograms()]).fit(Model(), Loader(batches))
    return summarize(Run.open(path / "trainperf"))


def test_a_callback_is_named_by_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an audit, and though Lightning calls it."""
    monkeypatch.setattr(sampler, "BUDGET", 0.05)
    summary = trained(tmp_path, TrainPerf(dirpath=str(tmp_path), report=False), 150)
    finding = next(finding for finding in summary.findings if finding.id == "callbacks")
    assert finding.where.startswith("tests/lightning/test_lines.py:")
    owner = summary.owner("callbacks")
    assert owner is not None
    of_class = "Histograms." if sys.version_info >= (3, 11) else ""  # code knows it from then on
    assert owner.function == f"{of_class}on_train_batch_end"
    assert owner.fraction >= 0.9
