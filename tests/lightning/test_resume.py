"""A fit that continues another knows what was done before, and keeps it apart from its own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from support.fits import Loader, Model, read, trainer

from trainperf.core.phases import Gap, Tag
from trainperf.lightning import DataWaitMonitor, TrainPerf


MASKED = {"x": torch.ones(2, 4), "attention_mask": torch.tensor([[1, 1, 0], [1, 1, 1]])}
"""Two samples, five effective tokens."""

pytestmark = pytest.mark.filterwarnings(
    "ignore:You're resuming from a checkpoint that ended before the epoch ended",
    "ignore:Checkpoint directory .* exists and is not empty",
    "ignore:Be aware that when using `ckpt_path`",
)


def saving(tmp_path: Path, every: int) -> ModelCheckpoint:
    """Keeps a checkpoint every so many steps."""
    return ModelCheckpoint(tmp_path / "kept", every_n_train_steps=every, save_top_k=-1)


def totals(checkpoint: Path) -> dict[str, Any]:
    """What our callback put into a checkpoint."""
    saved = torch.load(checkpoint, weights_only=True)["callbacks"]["TrainPerf"]
    assert set(saved) == {"totals", "run"}  # no clock value: it would mean nothing elsewhere
    return saved["totals"]


def test_a_checkpoint_holds_the_totals_of_every_step_it_contains(tmp_path: Path) -> None:
    """Also of the step at whose end it is saved, and every step is written once, in order.

    Saving it is a gap between that step and the next.
    """
    training = trainer(
        tmp_path, TrainPerf(report=False), saving(tmp_path, 3), enable_checkpointing=True
    )
    training.fit(Model(), Loader(7, batch=MASKED))
    kept = tmp_path / "kept"
    third = {"steps": 3, "samples": 6, "tokens_effective": 15}
    assert totals(kept / "epoch=0-step=3.ckpt") == third
    assert totals(kept / "epoch=0-step=6.ckpt") == {key: 2 * n for key, n in third.items()}
    ran = read(tmp_path / "trainperf")
    assert [step.index for step in ran.steps] == list(range(7))
    assert ran.fact("tokens_effective") == [5] * 7
    assert (ran.gap_places(Gap.CHECKPOINT), ran.tagged(Tag.AFTER_CHECKPOINT)) == ([2, 5], [3, 6])


def test_a_resumed_fit_says_what_it_continues_and_counts_its_own_steps(tmp_path: Path) -> None:
    """Totals are apart from the records: rates stand on this fit's steps and time alone."""
    first = trainer(
        tmp_path, TrainPerf(report=False), saving(tmp_path, 3), enable_checkpointing=True
    )
    first.fit(Model(), Loader(5, batch=MASKED))
    again = TrainPerf(report=False)
    second = trainer(tmp_path, again)
    second.fit(Model(), Loader(5, batch=MASKED), ckpt_path=tmp_path / "kept/epoch=0-step=3.ckpt")
    assert second.global_step == 5
    ran = read(tmp_path / "trainperf-1")
    assert ran.info.continues == str(tmp_path / "trainperf")
    assert ran.info.totals == {"steps": 3, "samples": 6, "tokens_effective": 15}
    assert [step.index for step in ran.steps] == [0, 1]
    assert ran.tagged(Tag.FIRST_IN_EPOCH) == [0]
    assert again.state_dict() == {
        "totals": {"steps": 5, "samples": 10, "tokens_effective": 25},
        "run": str(tmp_path / "trainperf-1"),
    }


def test_a_second_fit_of_one_trainer_is_a_run_of_its_own(tmp_path: Path) -> None:
    """The first is not written over; the trainer goes on, and so do the totals."""
    training = trainer(tmp_path, TrainPerf(report=False))
    training.fit(Model(), Loader(3))
    training.fit_loop.max_epochs = 2
    training.fit(Model(), Loader(3))
    first, second = read(tmp_path / "trainperf"), read(tmp_path / "trainperf-1")
    assert (len(first.steps), len(second.steps)) == (3, 3)
    assert first.info.continues == ""
    assert second.info.continues == str(tmp_path / "trainperf")
    assert second.info.totals == {"steps": 3, "samples": 6}


def test_totals_are_kept_whatever_else_is_attached_before(tmp_path: Path) -> None:
    """A stand-alone monitor keeps none: beside `TrainPerf` it is not the one that leads."""
    perf = TrainPerf(report=False)
    trainer(tmp_path, DataWaitMonitor(), perf).fit(Model(), Loader(4))
    assert perf.state_dict()["totals"] == {"steps": 4, "samples": 8}


def test_a_callback_that_never_trained_has_no_state(tmp_path: Path) -> None:
    """Lightning then writes nothing for it; neither has one whose fit never began."""
    perf = TrainPerf(report=False)
    assert perf.state_dict() == {}
    trainer(tmp_path, perf, limit_train_batches=0).fit(Model(), Loader(2))
    assert perf.state_dict() == {}


@pytest.mark.parametrize("foreign", [{}, {"totals": {}}, {"something": "else"}])
def test_a_checkpoint_of_another_making_is_taken_without_complaint(
    foreign: dict[str, Any], tmp_path: Path
) -> None:
    """Whatever is in it, training is not held up."""
    perf = TrainPerf(report=False)
    perf.load_state_dict(foreign)
    trainer(tmp_path, perf).fit(Model(), Loader(2))
    assert read(tmp_path / "trainperf").info.totals == {}
