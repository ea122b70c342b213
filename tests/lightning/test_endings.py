"""However a fit ends, its numbers are on disk, the profiler is back and no hook is left."""

import gc
import logging
import signal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from lightning.pytorch.callbacks import Callback
from support.fits import Loader, Model, read, trainer

from trainperf.lightning import TrainPerf, session
from trainperf.lightning.relay import ProfilerRelay


class Planted(Exception):  # noqa: N818 it is no error of ours
    """What the tests raise."""


class Failing(Model):
    """Raises in the forward of one batch."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__()
        self.at = at
        self.error = error

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Train, or raise."""
        if batch_idx == self.at:
            raise self.error
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("error", [Planted("planted"), KeyboardInterrupt()])
def test_the_numbers_so_far_are_reported(
    error: BaseException, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On disk and, unless that was turned off, in the terminal."""
    training = trainer(tmp_path, TrainPerf())
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises((Planted, SystemExit)):
            training.fit(Failing(30, error), Loader(40))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert (tmp_path / "trainperf" / "summary.json").exists()
    told = capsys.readouterr().out
    assert "after 30 steps" in told
    assert str(tmp_path / "trainperf") in told


def test_an_earlier_callback_that_fails_at_the_exception_is_made_good_at_the_next_fit(
    tmp_path: Path,
) -> None:
    """Lightning then never tells us; the next `setup` closes the first run and restores."""

    class Clumsy(Callback):
        def on_exception(self, *args: Any) -> None:
            raise Planted

    perf, before = TrainPerf(report=False), list(gc.callbacks)
    training = trainer(tmp_path, Clumsy(), perf)
    mine = training.profiler
    with pytest.raises(Planted):
        training.fit(Failing(2, ValueError()), Loader(4))
    training.fit(Model(), Loader(3))
    first, second = read(tmp_path / "trainperf"), read(tmp_path / "trainperf-1")
    assert first.end.reason == "interrupted"
    assert first.micro_batches() == [1, 1]
    assert second.micro_batches() == [1] * 3
    assert training.profiler is mine
    assert gc.callbacks == before


def test_a_logger_that_does_not_tell_its_directory_does_not_stop_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked before the fit begins, where nothing is measured yet."""
    monkeypatch.setattr(session, "log_directory", Mock(side_effect=LookupError("not logged in")))
    training = trainer(tmp_path, TrainPerf(report=False))
    with caplog.at_level(logging.WARNING, "trainperf"):
        training.fit(Model(), Loader(4))
    assert training.global_step == 4
    assert "not logged in" in caplog.text
    assert not isinstance(training.profiler, ProfilerRelay)


def test_a_place_that_is_no_storage_is_not_taken_for_a_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning writes to such places by other means; no directory of that name appears here."""
    monkeypatch.chdir(tmp_path)
    training = trainer(tmp_path, TrainPerf(report=False), default_root_dir="memory://somewhere")
    with caplog.at_level(logging.WARNING, "trainperf"):
        training.fit(Model(), Loader(4))
    assert training.global_step == 4
    (told,) = [record.message for record in caplog.records]
    assert "memory://somewhere: memory:// is no storage" in told
    assert list(tmp_path.iterdir()) == []
