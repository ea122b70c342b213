"""Habits of the Hugging Face Trainer that would mislead whoever listens to its events alone."""

import time
from pathlib import Path
from typing import Any

import torch
import transformers
from support.hugging_face import Rows, Tiny, measured
from support.threads import one_thread
from transformers import Trainer


__all__ = ["one_thread"]

NAP_S = 0.02


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


def test_a_sampler_that_reads_the_whole_dataset_first_is_startup(tmp_path: Path) -> None:
    """It is made before the Trainer's first event of the training."""
    rows = SlowLengths(40, lambda: time.sleep(NAP_S / 2))
    steps = measured(tmp_path, model=ReadsIds(), rows=rows, max_steps=3, **GROUPED)

    assert sum(steps.gap_s("startup")) >= 40 * NAP_S / 2
    assert max(steps.phase_s("data_wait")) < 40 * NAP_S / 2


def test_a_trainer_that_calls_backward_by_itself_is_told_apart(tmp_path: Path) -> None:
    """Past Accelerate: the time is in forward, and the notes say so."""

    class OwnBackward(Trainer):
        def training_step(self, model: Any, inputs: Any, *_: Any) -> torch.Tensor:
            loss = self.compute_loss(model, inputs)
            loss.backward()
            return loss.detach()

    steps = measured(tmp_path, kind=OwnBackward)

    assert "Accelerate" in steps.totals.notes["backward"]
    assert min(steps.phase_s("forward")) > 0
    assert set(steps.phase_s("backward")) == {0}
    assert steps.totals.faults == {}
