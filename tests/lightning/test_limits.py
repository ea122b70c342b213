"""A fit that is cut short, or that does without, counts what it did."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from lightning.pytorch.callbacks import Callback
from support.fits import Loader, Model, Ran, fit, read, trainer

from trainperf.core.phases import Tag
from trainperf.lightning import TrainPerf


def gap_labels(ran: Ran) -> list[str]:
    """Kinds of gaps, in order of their start."""
    return [record.gap for record in sorted(ran.gaps, key=lambda record: record.start_ns)]


def test_max_steps_in_the_middle_of_an_epoch_ends_with_a_whole_step(tmp_path: Path) -> None:
    """Three updates of two micro-batches are six batches of the second epoch's five."""
    ran = fit(tmp_path, Model(), Loader(5), max_steps=4, max_epochs=-1, accumulate_grad_batches=2)
    assert ran.micro_batches() == [2, 2, 1, 2]
    assert ran.tagged(Tag.PARTIAL_GROUP) == [2]
    assert gap_labels(ran) == ["startup", "epoch_boundary", "epoch_boundary", "shutdown"]


class StopAt(Callback):
    """Asks the trainer to stop after a batch."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: object, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Stop."""
        trainer.should_stop = batch_idx == self.batch


def test_a_stop_in_the_middle_of_a_group_leaves_a_step_that_is_tagged(tmp_path: Path) -> None:
    """The micro-batches that ran are reported; their update never came."""
    ran = fit(tmp_path, Model(), Loader(9), StopAt(4), accumulate_grad_batches=3)
    assert ran.micro_batches() == [3, 2]
    assert ran.tagged(Tag.PARTIAL_GROUP) == [1]


def test_a_barebones_trainer_is_measured_too(tmp_path: Path) -> None:
    """It has no logger, no progress bar, and no logging interval."""
    bare = pl.Trainer(
        barebones=True,
        accelerator="cpu",
        max_epochs=1,
        default_root_dir=tmp_path,
        callbacks=[TrainPerf(report=False)],
    )
    bare.fit(Model(), Loader(3))
    ran = read(tmp_path / "trainperf")
    assert ran.micro_batches() == [1] * 3
    assert gap_labels(ran) == ["startup", "epoch_boundary", "shutdown"]


def test_fast_dev_run_writes_nothing(tmp_path: Path) -> None:
    """As Lightning does; the callback runs along without a run directory."""
    perf = TrainPerf(report=False)
    quick = trainer(tmp_path, perf, fast_dev_run=3)
    quick.fit(Model(), Loader(5))
    assert quick.global_step == 3
    assert perf.state_dict()["totals"]["steps"] == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:.*`max_epochs=0`.*")
@pytest.mark.parametrize("options", [{"limit_train_batches": 0}, {"max_epochs": 0}])
def test_a_fit_that_never_trains_leaves_no_run_directory(
    options: dict[str, Any], tmp_path: Path
) -> None:
    """There is nothing to report, and an empty directory would be taken for a broken run."""
    trainer(tmp_path, TrainPerf(report=False), **options).fit(Model(), Loader(5))
    assert list(tmp_path.iterdir()) == []
