"""Habits of the Hugging Face Trainer that would mislead whoever listens to its events alone."""

import time
from collections import UserDict
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
import transformers
from support.hugging_face import Rows, Tiny, quiet, trainer
from support.loops import Written, read
from support.threads import one_thread
from torch.utils.data import default_collate
from transformers import Trainer, TrainerCallback

from trainperf.huggingface import TrainPerfCallback


__all__ = ["one_thread"]

NAP_S = 0.02


def written(callback: TrainPerfCallback) -> Written:
    """What a training has left."""
    assert callback.run is not None
    return read(callback.run / "steps-rank0.jsonl")


@pytest.mark.real_clock
def test_a_wait_is_in_the_step_that_asked_for_the_batch(tmp_path: Path) -> None:
    """All batches of an update are fetched before its first event: that would hide where."""
    batches = 0

    def collate(rows: list[Any]) -> Any:
        nonlocal batches
        batches += 1
        time.sleep(NAP_S if batches == 5 else 0)  # asked for in the second update of three
        return default_collate(rows)

    callback = quiet()
    training = trainer(tmp_path, callback, gradient_accumulation_steps=3, max_steps=4)
    training.data_collator = collate
    training.train()

    waits = written(callback).phase_s("data_wait")
    assert waits.index(max(waits)) == 1
    assert waits[1] >= NAP_S


class SlowToMove(UserDict[str, torch.Tensor]):
    """A batch whose copy takes a nap; the device is nowhere."""

    def to(self, device: torch.device, **_: bool) -> "SlowToMove":
        """As it is."""
        assert device.type == "meta"
        time.sleep(NAP_S)
        return self


class Nowhere(TrainerCallback):
    """Has Accelerate's loader copy to a device of which nothing comes back."""

    def on_train_begin(self, *_: object, **given: Any) -> None:
        """Before the loader is asked."""
        given["train_dataloader"].device = torch.device("meta")


@pytest.mark.real_clock
def test_the_copy_that_accelerates_loader_makes_is_h2d_and_no_wait(tmp_path: Path) -> None:
    """It happens between two waits for the loader underneath."""
    callback = quiet()
    training = trainer(tmp_path, Nowhere(), callback)
    training.data_collator = lambda rows: SlowToMove(default_collate(rows))
    training.train()

    steps = written(callback)
    assert min(steps.phase_s("h2d")[:-1]) >= NAP_S
    assert median(steps.phase_s("data_wait")[1:-1]) < NAP_S / 2


class SlowLengths(Rows):
    """Rows whose lengths a sampler asks for one by one."""

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        if place >= self.number:  # the sampler goes on until then
            raise IndexError(place)
        return {"input_ids": torch.zeros(4, dtype=torch.int64), **super().__getitem__(place)}


class ReadsIds(Tiny):
    """Takes them, too."""

    def forward(self, input_ids: torch.Tensor, **rest: torch.Tensor) -> dict[str, torch.Tensor]:
        """As the other."""
        del input_ids
        rest.pop("num_items_in_batch", None)
        return super().forward(**rest)


GROUPED: dict[str, Any] = (
    {"train_sampling_strategy": "group_by_length"}
    if int(transformers.__version__.split(".")[0]) >= 5
    else {"group_by_length": True}
)


@pytest.mark.real_clock
def test_a_sampler_that_reads_the_whole_dataset_first_is_startup(tmp_path: Path) -> None:
    """It is made before the Trainer's first event of the training."""
    callback = quiet()
    rows = SlowLengths(40, lambda: time.sleep(NAP_S / 2))
    trainer(tmp_path, callback, model=ReadsIds(), rows=rows, max_steps=3, **GROUPED).train()

    steps = written(callback)
    assert sum(steps.gap_s("startup")) >= 40 * NAP_S / 2
    assert max(steps.phase_s("data_wait")) < 40 * NAP_S / 2


def test_a_trainer_that_calls_backward_by_itself_is_told_apart(tmp_path: Path) -> None:
    """Past Accelerate: the time is in forward, and the notes say so."""

    class OwnBackward(Trainer):
        def training_step(self, model: Any, inputs: Any, *_: Any) -> torch.Tensor:
            loss = self.compute_loss(model, inputs)
            loss.backward()
            return loss.detach()

    callback = quiet()
    trainer(tmp_path, callback, kind=OwnBackward).train()

    steps = written(callback)
    assert "Accelerate" in steps.totals.notes["backward"]
    assert min(steps.phase_s("forward")) > 0
    assert set(steps.phase_s("backward")) == {0}
    assert steps.totals.faults == {}


def test_the_accelerators_backward_is_its_own_again_after_the_training(tmp_path: Path) -> None:
    """Nothing stays on the object."""
    training = trainer(tmp_path, quiet())
    training.train()

    assert "backward" not in vars(training.accelerator)
