"""Trainings that people reported to get slower and slower, as small scripts: the cause is named.

Numbers are those of `docs/research/threads.md`.  The fits' clock counts what the training thread
calls, so nothing else on the machine moves it: what a step does more is all that makes it longer.
"""

import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CSVLogger
from support.fits import QUIET, Model
from support.loops import on_clock
from torch.utils.data import DataLoader

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary import long_term
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding
from trainperf.lightning import TrainPerf, measurement
from trainperf.loop import fit
from trainperf.recording.probes import selection


pytestmark = pytest.mark.slow

STEPS = 640


class CallClock:
    """A microsecond for every call of a function, Python's or C's, and for every return."""

    def __init__(self) -> None:
        self.events = 0

    def count(self, *_: object) -> None:
        """What `sys.setprofile` is given."""
        self.events += 1

    def __call__(self) -> int:
        """Nanoseconds."""
        return self.events * 1000


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fits that are timed by what they call; a test has no half minute per fit."""
    clock = CallClock()
    monkeypatch.setattr(long_term, "LEAST_LASTS_S", 0.2)
    monkeypatch.setattr(measurement, "Fit", on_clock(clock))
    monkeypatch.setattr(fit, "monotonic_ns", clock)  # lines are sampled all the same
    # What the kernel counts is of another clock: a busy machine would be why steps are longer.
    monkeypatch.setattr(selection, "countable", bool)
    sys.setprofile(clock.count)
    yield
    sys.setprofile(None)


class NewNames(Model):
    """A new name in every fourth step, as of a metric per batch or per epoch."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The loss, logged."""
        loss = super().training_step(batch, batch_idx)
        self.log(f"loss_{self.global_step // 4}", loss)
        return loss


class KeepingOutputs(Model):
    """Outputs of all steps are kept, and gone through in each."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[torch.Tensor] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The loss, and the mean of everything so far."""
        loss = super().training_step(batch, batch_idx)
        self.outputs.append(torch.ones(64) * float(loss.detach()))
        parts = [each for output in self.outputs for each in (output.min(), output.max())]
        torch.stack([part.mean() for part in parts]).mean()
        return loss


def fitted(tmp_path: Path, model: Model, **options: Any) -> Summary:
    """A fit, read back."""
    data = DataLoader(torch.randn(STEPS, 4), batch_size=1)
    measure = TrainPerf(report=False, dirpath=str(tmp_path))
    settings = {**QUIET, "max_steps": STEPS, "log_every_n_steps": 1, **options}
    Trainer(default_root_dir=tmp_path, callbacks=[measure], **settings).fit(model, data)
    return summarize(Run.open(tmp_path))


def slower(summary: Summary) -> Finding:
    """The finding of that name."""
    (finding,) = [each for each in summary.findings if each.id == "slower_since"]
    return finding


def test_thread_8_a_log_file_that_is_rewritten(tmp_path: Path) -> None:
    """Lightning#17725: since PR#18567 its logger writes all rows again with a new name only."""
    logger = CSVLogger(tmp_path / "logs", flush_logs_every_n_steps=1)

    finding = slower(fitted(tmp_path / "run", NewNames(), logger=logger))

    assert finding.title.startswith("steps get slower all the time: loop grows from")
    assert finding.advice == "Keep CSVLogger from doing more with every step"
    assert "append to the log file instead of writing all of it again" in finding.action
    names = (Path(logger.log_dir) / "metrics.csv").read_text().partition("\n")[0].split(",")
    assert sum(name.startswith("loss_") for name in names) == STEPS // 4


def test_a_log_file_that_is_appended_to_is_no_drift(tmp_path: Path) -> None:
    """The same logger with names that stay."""

    class OneName(Model):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            """The loss, logged."""
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss

    logger = CSVLogger(tmp_path / "logs", flush_logs_every_n_steps=1)

    summary = fitted(tmp_path / "run", OneName(), logger=logger)
    assert all(change.from_step for change in summary.long_term)


def test_thread_9_outputs_that_are_kept(tmp_path: Path) -> None:
    """Lightning#2493: in forward, at the line that goes through them."""
    finding = slower(fitted(tmp_path, KeepingOutputs()))

    assert finding.title.startswith("steps get slower all the time: forward grows from")
    # The function, or its line where the loop is seen to run in it anyway.
    assert finding.where in finding.advice
    assert finding.advice.endswith("goes through more of with every step")
    file, _, line = finding.where.rpartition(":")
    assert file.endswith(Path(__file__).name)
    gone_through = ("for output in self.outputs", "for part in parts")
    assert any(words in linecache.getline(__file__, int(line)) for words in gone_through)
    assert "list of outputs" in finding.action
