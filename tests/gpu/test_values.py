"""Numbers that live on the device come back exact: overflows, tokens, losses, memory."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from support.fits import Loader, Model, Ran, Sleeper, fit
from support.gpu import (
    DEVICE,
    SIMULATED,
    DeviceWork,
    backend,
    known,
    plain_loop,
    trainer_options,
)

from trainperf.core.phases import Tag


pytestmark = pytest.mark.gpu

PLANTED = {0, 3, 4, 8}
"""Batches whose gradients are infinite."""

BATCHES = 10

SPIKE_BYTES = 1 << (26 if SIMULATED else 29)


def late(model: Model) -> Model:
    """Whatever it computes comes some time after the host has asked for it."""
    work = DeviceWork()
    model.in_forward = lambda: work.queue(2.0)
    return model


class Overflowing(Model):
    """Has infinite gradients in the planted batches."""

    def __init__(self, optimizer: Any, *, fused: bool) -> None:
        super().__init__()
        self.optimizer, self.fused = optimizer, fused

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The loss, times infinity in some batches."""
        self.in_forward()
        return self.loss(batch) * (float("inf") if batch_idx in PLANTED else 1.0)

    def configure_optimizers(self) -> Any:
        """The optimizer under test."""
        return self.optimizer(self.parameters(), lr=0.01, fused=self.fused)


class Remembering(Model):
    """Keeps a copy of every loss on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The loss, remembered."""
        loss = self.loss(batch)
        self.in_forward()
        self.losses.append(loss.detach().clone())
        return loss


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_planted_infinities_are_counted_step_by_step(
    optimizer: type[torch.optim.Optimizer],
    fused: bool,  # noqa: FBT001 pytest passes it by name
    tmp_path: Path,
) -> None:
    """One attempt a step, an overflow in the planted ones, and the scale halved by each."""
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**10, growth_interval=10_000)
    plugins = [MixedPrecision("16-mixed", DEVICE, scaler)]
    model = late(Overflowing(optimizer, fused=fused))
    ran = fit(tmp_path, model, Loader(BATCHES), **trainer_options(), plugins=plugins)
    assert known(ran, "attempts") == [1] * BATCHES
    assert known(ran, "overflows") == [int(index in PLANTED) for index in range(BATCHES)]
    assert ran.tagged(Tag.OVERFLOW) == sorted(PLANTED)
    scales = [scale for scale in ran.fact("loss_scale") if scale is not None]
    assert scales[-1] == 2.0**10 / 2 ** len(PLANTED) == scaler.get_scale()


@pytest.mark.parametrize("name", ["attention_mask", "labels"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_masks_on_the_device_give_exact_tokens(name: str, accumulate: int, tmp_path: Path) -> None:
    """Other lengths in every batch: each step has its own sum, and the histogram has them all."""
    generator = torch.Generator().manual_seed(0)
    batches, kept = [], []
    for _ in range(60):
        lengths = torch.randint(1, 65, (8, 1), generator=generator)
        mask = torch.arange(64) < lengths
        labels = torch.where(mask, 7, -100)
        values = mask.to(torch.int64) if name == "attention_mask" else labels
        batches.append({"x": torch.ones(8, 4), name: values})
        kept.append(int(lengths.sum()))
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    ran = fit(
        tmp_path, late(Model()), loader, **trainer_options(), accumulate_grad_batches=accumulate
    )
    expected = [sum(kept[at : at + accumulate]) for at in range(0, len(kept), accumulate)]
    assert known(ran, "tokens_effective") == expected
    assert known(ran, "tokens_padded") == [8 * 64 * accumulate] * len(expected)
    assert sum(ran.totals.sequence_lengths.values()) == 8 * 60


@pytest.mark.first
def test_the_loss_of_every_step_is_the_one_that_was_computed(tmp_path: Path) -> None:
    """To the seven digits that a float32 has, over more than two groups of steps."""
    model = Remembering()
    late(model)
    ran = fit(tmp_path, model, Loader(120), **trainer_options())
    computed = torch.stack(model.losses).tolist()
    assert len(set(computed)) > 100
    assert known(ran, "loss") == [float(f"{loss:.7g}") for loss in computed]


def test_nothing_more_is_held_on_the_device_after_the_first_steps(tmp_path: Path) -> None:
    """Two hundred steps after the first hundred end with no more bytes allocated than those."""
    held: list[int] = []

    def look() -> None:
        torch.accelerator.synchronize()  # a device that falls behind needs more buffers
        held.append(backend().memory_allocated())

    plain_loop(tmp_path, torch.nn.Linear(4, 1).to(DEVICE), Loader(300), look)
    assert len(held) == 300
    assert max(held[100:]) <= max(held[:100])


@pytest.mark.first
def test_memory_peaks_are_those_of_the_allocator(tmp_path: Path) -> None:
    """A large tensor, gone after the third step, stands in the peaks to the byte."""
    backend().empty_cache()
    backend().reset_peak_memory_stats()
    steps: list[None] = []

    def spike() -> None:
        steps.append(None)
        if len(steps) == 3:
            torch.empty(SPIKE_BYTES, dtype=torch.uint8, device=DEVICE)

    model = torch.nn.Linear(4, 1).to(DEVICE)
    # Memory is sampled four times a second: the sleeps leave time for one after the third step.
    ran = plain_loop(tmp_path, model, Loader(60, slow=Sleeper(0.01)), spike)
    assert highest(ran, "peak_bytes") == backend().max_memory_allocated() > SPIKE_BYTES
    assert highest(ran, "reserved_peak_bytes") == backend().max_memory_reserved()


def highest(ran: Ran, fact: str) -> float:
    """The largest value of a fact that is sampled."""
    return max(value for value in ran.fact(fact) if value is not None)
