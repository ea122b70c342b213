"""A step of accumulation is its whole group of micro-batches."""

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from support.fits import (
    LONG_S,
    SHORT_S,
    Loader,
    Model,
    Sleeper,
    assert_comes_back,
    fit,
)

from trainperf.core.phases import Phase, Tag


def test_a_step_of_accumulation_is_the_whole_group_and_a_short_last_one_is_tagged(
    tmp_path: Path,
) -> None:
    """Eight batches in threes are three steps, the third of two micro-batches, every epoch."""
    ran = fit(tmp_path, Model(), Loader(8), accumulate_grad_batches=3, max_epochs=2)
    assert ran.micro_batches() == [3, 3, 2, 3, 3, 2]
    assert ran.tagged(Tag.PARTIAL_GROUP) == [2, 5]
    assert ran.fact("samples") == [6, 6, 4, 6, 6, 4]


def test_a_last_group_that_is_whole_is_not_tagged(tmp_path: Path) -> None:
    """Nine batches in threes leave nothing over."""
    ran = fit(tmp_path, Model(), Loader(9), accumulate_grad_batches=3)
    assert ran.micro_batches() == [3, 3, 3]
    assert ran.tagged(Tag.PARTIAL_GROUP) == []


def test_the_loss_of_an_accumulated_step_is_the_one_training_step_returned(tmp_path: Path) -> None:
    """Lightning divides the loss by the accumulation before it shows it to callbacks."""

    class Constant(Model):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return 0.0 * self.loss(batch) + float(batch_idx)

    ran = fit(tmp_path, Constant(), Loader(5), accumulate_grad_batches=2)
    assert ran.fact("loss") == [1.0, 3.0, 4.0]


def test_accumulation_that_changes_while_training_is_followed(tmp_path: Path) -> None:
    """Groups of one, then of three, the last of them short; each loss is as it was returned."""

    class Constant(Model):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return 0.0 * self.loss(batch) + float(batch_idx + 1)

    schedule = GradientAccumulationScheduler({0: 1, 1: 3})
    ran = fit(tmp_path, Constant(), Loader(4), schedule, max_epochs=2)
    assert ran.micro_batches() == [1, 1, 1, 1, 3, 1]
    assert ran.tagged(Tag.PARTIAL_GROUP) == [5]
    assert ran.fact("loss") == [1.0, 2.0, 3.0, 4.0, 3.0, 4.0]


@pytest.mark.real_clock
def test_the_waits_of_all_micro_batches_belong_to_their_step(tmp_path: Path) -> None:
    """The data wait of a step of two micro-batches is both of its fetches."""
    slow = Sleeper(*[SHORT_S / 2] * 4, *[LONG_S / 2] * 4)
    ran = fit(tmp_path, Model(), Loader(32, slow=slow), accumulate_grad_batches=2)
    pairs = list(zip(slow.slept_ns[::2], slow.slept_ns[1::2], strict=True))
    assert_comes_back(ran.phase_ns(Phase.DATA_WAIT), [sum(pair) for pair in pairs])
