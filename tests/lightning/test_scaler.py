"""Planted overflows are counted one by one, whatever optimizer and loop they happen in."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins import MixedPrecision
from support.fits import Loader, Model, Ran, fit, read, trainer

from trainperf.core.phases import Tag
from trainperf.lightning import TrainPerf


BATCHES = 10
PLANTED = {0, 3, 4, 8}
"""Batches whose gradients are infinite."""

INFINITE = float("inf")


def scaler(**options: Any) -> torch.amp.GradScaler:
    """A GradScaler on the CPU that never grows by itself."""
    return torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=10_000, **options)


def mixed(chosen: torch.amp.GradScaler) -> dict[str, Any]:
    """Trainer options for half precision with this scaler."""
    return {"plugins": [MixedPrecision("16-mixed", "cpu", chosen)]}


class Overflowing(Model):
    """Has infinite gradients in the planted batches."""

    def __init__(self, optimizer: Callable[..., torch.optim.Optimizer] | None = None) -> None:
        super().__init__()
        self.optimizer = optimizer or sgd

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The loss, times infinity in some batches."""
        return self.loss(batch) * (INFINITE if batch_idx in PLANTED else 1.0)

    def configure_optimizers(self) -> Any:
        """The optimizer under test."""
        return self.optimizer(self.parameters())


sgd = partial(torch.optim.SGD, lr=0.01)
"""Not fused, as the next: its `step` does not run when the scaler skips."""
adamw = partial(torch.optim.AdamW, lr=0.01)
fused_sgd = partial(sgd, fused=True)
"""Its `step` runs always, and its kernel skips; as the next."""
fused_adamw = partial(adamw, fused=True)


class Textbook(Callback):
    """Counts as textbooks do: an update was skipped where the scale has fallen."""

    def __init__(self, watched: torch.amp.GradScaler) -> None:
        self.watched = watched
        self.before = 0.0
        self.fell: list[int] = []

    def on_train_batch_start(self, *args: Any) -> None:
        """Look before."""
        self.before = self.watched.get_scale()

    def on_train_batch_end(self, *args: Any) -> None:
        """Look after."""
        self.fell.append(int(self.watched.get_scale() < self.before))


def counts(ran: Ran) -> tuple[list[Any], list[Any]]:
    """Attempts and overflows of every step."""
    return ran.fact("attempts"), ran.fact("overflows")


def last_scale(ran: Ran) -> float | int | None:
    """The latest loss scale that was read."""
    return [value for value in ran.fact("loss_scale") if value is not None][-1]


@pytest.mark.parametrize("optimizer", [sgd, adamw, fused_sgd, fused_adamw])
def test_planted_infinities_are_counted_step_by_step(
    optimizer: Callable[..., torch.optim.Optimizer], tmp_path: Path
) -> None:
    """Where the textbook rule can see them both agree, and the scale is halved each time."""
    chosen = scaler()
    textbook = Textbook(chosen)
    ran = fit(tmp_path, Overflowing(optimizer), Loader(BATCHES), textbook, **mixed(chosen))
    planted = [int(index in PLANTED) for index in range(BATCHES)]
    assert counts(ran) == ([1] * BATCHES, planted)
    assert textbook.fell == planted
    assert ran.tagged(Tag.OVERFLOW) == sorted(PLANTED)
    assert last_scale(ran) == 2.0**10 / 2 ** len(PLANTED) == chosen.get_scale()


@pytest.mark.filterwarnings("ignore:.*returned `None`.*")
@pytest.mark.parametrize("optimizer", [sgd, fused_sgd])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_training_step_that_returns_none_is_no_overflow(
    accumulate: int, optimizer: Callable[..., torch.optim.Optimizer], tmp_path: Path
) -> None:
    """Lightning then leaves the scaler alone, also where an earlier micro-batch went backward."""

    class Skipping(Model):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx in (3, 5) else self.loss(batch)

        def configure_optimizers(self) -> Any:
            return optimizer(self.parameters())

    ran = fit(
        tmp_path, Skipping(), Loader(8), accumulate_grad_batches=accumulate, **mixed(scaler())
    )
    attempts, overflows = counts(ran)
    assert sum(overflows_ or 0 for overflows_ in overflows) == 0
    skipped = {3, 5} if accumulate == 1 else {1, 2}
    assert [index for index, n in enumerate(attempts) if not n] == sorted(skipped)


class Players(Model):
    """Two parts, each with an optimizer of its own, in manual optimization."""

    def __init__(self, optimizer: Callable[..., torch.optim.Optimizer]) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.second = torch.nn.Linear(4, 1)
        self.optimizer = optimizer

    def configure_optimizers(self) -> Any:
        """One for each part."""
        return [self.optimizer(self.layer.parameters()), self.optimizer(self.second.parameters())]

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """The first overflows in batches 1 and 2, the second in 2 and 5."""
        first, second = self.optimizers()
        self.turn(first, self.loss(batch) * (INFINITE if batch_idx in (1, 2) else 1.0))
        self.turn(second, self.second(batch).mean() * (INFINITE if batch_idx in (2, 5) else 1.0))

    def turn(self, optimizer: Any, loss: torch.Tensor) -> None:
        """One update."""
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()


@pytest.mark.parametrize("optimizer", [sgd, fused_sgd, fused_adamw])
def test_the_overflows_of_several_optimizers_are_told_apart(
    optimizer: Callable[..., torch.optim.Optimizer], tmp_path: Path
) -> None:
    """Each attempt is one optimizer's; both may overflow in one step."""
    ran = fit(tmp_path, Players(optimizer), Loader(7), **mixed(scaler()))
    assert counts(ran) == ([2] * 7, [0, 1, 2, 0, 0, 1, 0])
    assert last_scale(ran) == 2.0**10 / 2**4


@pytest.mark.parametrize("optimizer", [sgd, fused_sgd])
def test_optimizers_that_share_a_backward_are_both_attempts(
    optimizer: Callable[..., torch.optim.Optimizer], tmp_path: Path
) -> None:
    """One loss, two updates."""

    class Shared(Players):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            first, second = self.optimizers()
            first.zero_grad()
            second.zero_grad()
            loss = self.loss(batch) + self.second(batch).mean()
            self.manual_backward(loss * (INFINITE if batch_idx == 2 else 1.0))
            first.step()
            second.step()

    ran = fit(tmp_path, Shared(optimizer), Loader(5), **mixed(scaler()))
    assert counts(ran) == ([2] * 5, [0, 0, 2, 0, 0])


def test_an_attempt_whose_backward_was_not_announced_counts_too(tmp_path: Path) -> None:
    """In manual optimization the scaler always steps, however the gradients came about."""

    class Direct(Players):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            first, _ = self.optimizers()
            first.zero_grad()
            scaled = self.trainer.precision_plugin.scaler.scale(self.loss(batch))
            (scaled * (INFINITE if batch_idx == 1 else 1.0)).backward()
            first.step()

    ran = fit(tmp_path, Direct(sgd), Loader(4), **mixed(scaler()))
    assert counts(ran) == ([1] * 4, [0, 1, 0, 0])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "not applicable: precision 32-true uses no GradScaler"),
        ({"precision": "bf16-mixed"}, "not applicable: precision bf16-mixed uses no GradScaler"),
        (
            mixed(scaler(enabled=False)),
            "not applicable: precision 16-mixed uses no GradScaler",
        ),
    ],
)
def test_where_nothing_is_scaled_the_rate_is_not_zero_but_not_applicable(
    options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    """With the reason."""
    ran = fit(tmp_path, Model(), Loader(3), **options)
    assert "overflows" not in ran.info.columns
    assert ran.info.reasons["overflows"] == reason


def test_a_hook_of_ours_that_fails_inside_the_optimizer_costs_its_measurement_only(
    tmp_path: Path,
) -> None:
    """The optimizer steps; what it stumbled over is in the report."""

    class Odd(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {})

        @property
        def found_inf(self) -> torch.Tensor:
            raise LookupError("planted")

        def step(self, closure: Any = None) -> None:
            steps.append(1)

    model, steps = Overflowing(Odd), []
    trainer(tmp_path, TrainPerf(report=False), **mixed(scaler())).fit(model, Loader(BATCHES))
    assert len(steps) == BATCHES - len(PLANTED)
    assert read(tmp_path / "trainperf").totals.faults == {"scaler": "LookupError: planted"}
