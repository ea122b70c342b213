"""The profiler a user configured works as if ours were not there, and is back afterwards."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.profilers import (
    AdvancedProfiler,
    Profiler,
    PyTorchProfiler,
    SimpleProfiler,
)
from support.fits import Loader, Model, fit, trainer

from trainperf.lightning import TrainPerf
from trainperf.lightning.relay import install, restore


PER_BATCH = (
    "[_TrainingEpochLoop].train_dataloader_next",
    "[Strategy]SingleDeviceStrategy.training_step",
    "[Strategy]SingleDeviceStrategy.backward",
    "[LightningModule]Model.optimizer_step",
    "[LightningModule]Model.on_train_batch_end",
    "run_training_batch",
)


def calls(tmp_path: Path, *callbacks: Callback) -> dict[str, int]:
    """How often Lightning's simple profiler saw each action."""
    profiler = SimpleProfiler()
    trainer(tmp_path, *callbacks, profiler=profiler).fit(Model(), Loader(5))
    return {action: len(times) for action, times in profiler.recorded_durations.items()}


def test_a_simple_profiler_sees_every_action_it_would_have_seen(tmp_path: Path) -> None:
    """The same actions, each as often, and our own callback's few besides."""
    without, beside = calls(tmp_path), calls(tmp_path, TrainPerf(report=False))
    ours = {action for action in beside if "[Callback]TrainPerf" in action}
    assert {action: n for action, n in beside.items() if action not in ours} == without
    assert all(without[action] == 5 for action in PER_BATCH)


@pytest.mark.parametrize(
    ("kind", "actions"),
    [
        (SimpleProfiler, PER_BATCH),
        (AdvancedProfiler, PER_BATCH),
        # It counts steps by the names of actions, and asserts when it is torn down too early.
        (
            partial(PyTorchProfiler, export_to_chrome=False),
            ["[pl][profile]run_training_batch"],
        ),
    ],
    ids=["simple", "advanced", "torch"],
)
def test_the_report_of_lightnings_profilers_is_complete(
    kind: Callable[..., Profiler], actions: Sequence[str], tmp_path: Path
) -> None:
    """Written by `describe` when the fit ends; the relay must not have torn the profiler down."""
    profiler = kind(dirpath=tmp_path, filename="report")
    training = trainer(tmp_path, TrainPerf(report=False), profiler=profiler)
    training.fit(Model(), Loader(8))
    assert training.profiler is profiler
    written = (tmp_path / "fit-report.txt").read_text()
    for action in actions:
        assert action in written


class Diary(Profiler):
    """A user's own profiler: keeps what begins and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[str] = []
        self.ended: list[str] = []

    def start(self, action_name: str) -> None:
        """Note it."""
        self.began.append(action_name)

    def stop(self, action_name: str) -> None:
        """Note it."""
        self.ended.append(action_name)


class OwnBrackets(Diary):
    """A user's own profiler that brackets by its own means, as Lightning lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.bracketed: list[str] = []

    @contextmanager
    def profile(self, action_name: str) -> Iterator[None]:
        """Note it elsewhere."""
        self.bracketed.append(action_name)
        yield


def test_a_custom_profiler_hears_every_start_and_stop(tmp_path: Path) -> None:
    """In the order in which they happen, the end of each after its beginning."""
    diary = Diary()
    training = trainer(tmp_path, TrainPerf(report=False), profiler=diary)
    training.fit(Model(), Loader(2))
    assert training.profiler is diary
    assert sorted(diary.began) == sorted(diary.ended)
    steps = [name for name in diary.began if name in PER_BATCH]
    assert steps[:2] == ["[_TrainingEpochLoop].train_dataloader_next", "run_training_batch"]


def test_a_custom_profilers_own_brackets_are_used(tmp_path: Path) -> None:
    """Lightning calls `profile` for hooks and `start` for a fetch; so do we."""
    own = OwnBrackets()
    ran = fit(tmp_path, Model(), Loader(3), profiler=own)
    assert own.began == ["[_TrainingEpochLoop].train_dataloader_next"] * 3
    assert own.ended == own.began
    assert own.bracketed.count("run_training_batch") == 3
    assert ran.micro_batches() == [1] * 3


def test_a_callback_may_ask_the_profiler_it_was_configured_with(tmp_path: Path) -> None:
    """Attributes of the user's profiler are there while the relay stands in for it."""

    class Curious(Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: object) -> None:
            self.seen = trainer.profiler.recorded_durations["run_training_batch"]
            with pytest.raises(AttributeError):
                trainer.profiler.no_such_thing  # noqa: B018

    curious = Curious()
    fit(tmp_path, Model(), Loader(3), curious, profiler="simple")
    assert len(curious.seen) == 3


def test_a_users_own_action_in_a_step_is_no_phase(tmp_path: Path) -> None:
    """`trainer.profiler.profile("mine")` reaches their profiler and changes nothing for us."""

    class Marking(Model):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            with self.trainer.profiler.profile("mine"), self.trainer.profiler.profile("mine"):
                return super().training_step(batch, batch_idx)

    diary = Diary()
    ran = fit(tmp_path, Marking(), Loader(3), profiler=diary)
    assert diary.began.count("mine") == 6
    assert ran.micro_batches() == [1] * 3


def test_a_relay_left_behind_is_unwrapped_not_wrapped(tmp_path: Path) -> None:
    """After an exception in somebody's `on_exception` nobody restores the profiler."""
    training = trainer(tmp_path)
    before = training.profiler
    install(training, lambda _name: None)
    assert install(training, lambda _name: None).inner is before
    restore(training)
    assert training.profiler is before
