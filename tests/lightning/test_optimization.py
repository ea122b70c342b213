"""A step is an optimizer update, however the updates come about."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from support.fits import (
    At,
    Loader,
    Model,
    Pause,
    assert_comes_back,
    fit,
    planted,
)

import trainperf.lightning
from trainperf.core.phases import Phase, Tag
from trainperf.lightning import StepTimeMonitor
from trainperf.lightning.callback import AutoTrainPerf
from trainperf.lightning.session import NO_UPDATE


class Manual(Model):
    """Runs what it is given instead of automatic optimization."""

    def __init__(self, step: Callable[["Manual", Any, int], Any], *, optimizers: int = 1) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.step = step
        self.number = optimizers

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Whatever the test wants."""
        return self.step(self, batch, batch_idx)

    def configure_optimizers(self) -> Any:
        """As many as asked for, all on the same layer."""
        return [torch.optim.SGD(self.parameters(), lr=0.01) for _ in range(self.number)]

    def update(self, batch: Any, optimizer: Any) -> None:
        """Forward, backward and update."""
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        optimizer.step()


def gan(model: Manual, batch: Any, batch_idx: int) -> None:
    """A discriminator that is updated every batch, and a generator every third."""
    discriminator, generator = model.optimizers()
    model.update(batch, discriminator)
    if batch_idx % 3 == 2:
        model.update(batch, generator)


def alternating(model: Manual, batch: Any, batch_idx: int) -> None:
    """Two optimizers in turn."""
    model.update(batch, model.optimizers()[batch_idx % 2])


def both(model: Manual, batch: Any, batch_idx: int) -> None:
    """Two optimizers in every batch."""
    for optimizer in model.optimizers():
        model.update(batch, optimizer)


def unseen(model: Manual, batch: Any, batch_idx: int) -> None:
    """An optimizer of which Lightning is told nothing."""
    model.update(batch, model.optimizers(use_pl_optimizer=False)[0])


def closure(model: Manual, batch: Any, batch_idx: int) -> None:
    """Backward inside the optimizer's step."""
    optimizer = model.optimizers()[0]

    def compute() -> torch.Tensor:
        loss = model.loss(batch)
        optimizer.zero_grad()
        model.manual_backward(loss)
        return loss

    optimizer.step(closure=compute)


@pytest.mark.parametrize("step", [gan, alternating, both, unseen, closure])
def test_a_batch_with_at_least_one_update_is_a_step(
    step: Callable[[Manual, Any, int], None], tmp_path: Path
) -> None:
    """Not one step for each optimizer, whose number `trainer.global_step` counts."""
    ran = fit(tmp_path, Manual(step, optimizers=2), Loader(7))
    assert ran.micro_batches() == [1] * 7
    assert ran.tagged(Tag.PARTIAL_GROUP) == []


@pytest.mark.parametrize("known", [True, False])
def test_accumulation_by_hand_is_seen_by_its_updates(tmp_path: Path, *, known: bool) -> None:
    """An update every third batch of seven: two whole steps, and one that was never completed."""

    def step(model: Manual, batch: Any, batch_idx: int) -> None:
        optimizer = model.optimizers(use_pl_optimizer=known)
        model.manual_backward(model.loss(batch))
        if batch_idx % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()

    ran = fit(tmp_path, Manual(step), Loader(7))
    assert ran.micro_batches() == [3, 3, 1]
    assert ran.tagged(Tag.PARTIAL_GROUP) == [2]


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


def test_where_no_update_is_ever_seen_a_batch_is_a_step_and_the_run_says_so(
    tmp_path: Path,
) -> None:
    """An optimizer made by the user, of which nobody is told, leaves 64 batches in one step."""

    def step(model: Manual, batch: Any, batch_idx: int) -> None:
        with torch.no_grad():
            model.layer.weight.mul_(0.99)

    ran = fit(tmp_path, Manual(step), Loader(70))
    assert ran.micro_batches() == [64, *[1] * 6]
    said = f"{NO_UPDATE} in 64 batches, so every batch counts as a step"
    assert ran.totals.notes["step"] == said


class SlowSGD(torch.optim.SGD):
    """Slow to step."""

    sleeper: Pause

    def step(self, closure: Any = None) -> Any:
        """The usual step, then a sleep."""
        loss = super().step(closure)
        self.sleeper()
        return loss


def slow_manual(place: Phase, sleeper: Pause, *, known: bool) -> Manual:
    """A model in manual optimization that is slow in one phase of it."""

    def step(model: Manual, batch: Any, batch_idx: int) -> None:
        optimizer = model.optimizers(use_pl_optimizer=known)
        optimizer.zero_grad()
        loss = model.loss(batch)
        if place is Phase.FORWARD:
            sleeper()
        model.manual_backward(loss)
        optimizer.step()

    model = Manual(step)
    optimizer = (SlowSGD if place is Phase.OPTIMIZER else torch.optim.SGD)(model.parameters(), 0.01)
    optimizer.sleeper = sleeper
    model.configure_optimizers = lambda: optimizer
    if place is Phase.BACKWARD:
        model.layer.weight.register_post_accumulate_grad_hook(lambda _: sleeper())
    return model


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("place", [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER])
def test_manual_optimization_is_split_into_forward_backward_and_optimizer(
    tmp_path: Path, place: Phase, *, known: bool
) -> None:
    """All three run inside `training_step`; each keeps its own time, known to Lightning or not."""
    sleeper = Pause()
    ran = planted(tmp_path, slow_manual(place, sleeper, known=known), Loader(16))
    assert_comes_back(ran, place, sleeper.slept_ns)


def test_a_direct_backward_counts_as_forward_and_the_run_says_so(tmp_path: Path) -> None:
    """Nothing announces `loss.backward()`; only `self.manual_backward` can be told apart."""
    sleeper = Pause()

    def step(model: Manual, batch: Any, batch_idx: int) -> None:
        optimizer = model.optimizers()
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()

    model = Manual(step)
    model.layer.weight.register_post_accumulate_grad_hook(lambda _: sleeper())
    ran = planted(tmp_path, model, Loader(16))
    assert ran.phase_ns(Phase.BACKWARD) == [0] * 16
    assert_comes_back(ran, Phase.FORWARD, sleeper.slept_ns)
    assert "manual_backward" in ran.totals.notes["backward"]


def test_an_error_that_the_user_catches_in_an_optimizer_step_leaves_no_phase_open(
    tmp_path: Path,
) -> None:
    """Lightning announces the step's beginning and, after an error, never its end."""

    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            raise RuntimeError("planted")

    def step(model: Manual, batch: Any, batch_idx: int) -> None:
        for optimizer, known in zip(model.optimizers(), (False, True), strict=True):
            if known:
                model.update(batch, optimizer)
            else:
                with pytest.raises(RuntimeError, match="planted"):
                    optimizer.step()

    model = Manual(step)
    model.configure_optimizers = lambda: [
        Failing(model.parameters(), lr=0.01),
        torch.optim.SGD(model.parameters(), lr=0.01),
    ]
    before, after = Pause(), Pause()
    ran = planted(tmp_path, model, Loader(16, slow=before), At("on_train_batch_end", after))
    assert ran.phase_ns(Phase.DATA_WAIT) == before.slept_ns
    assert ran.phase_ns(Phase.CALLBACKS) == after.slept_ns
    assert not any(ran.phase_ns(Phase.FORWARD))


@pytest.mark.filterwarnings("ignore:.*returned `None`.*")
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_training_step_that_returns_none_is_still_a_micro_batch(
    accumulate: int, tmp_path: Path
) -> None:
    """Lightning steps the optimizer all the same, and counts it."""

    class Skipping(Model):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx % 2 else super().training_step(batch, batch_idx)

    ran = fit(tmp_path, Skipping(), Loader(6), accumulate_grad_batches=accumulate)
    assert ran.micro_batches() == [accumulate] * (6 // accumulate)


def test_a_model_without_an_optimizer_has_a_step_a_batch(tmp_path: Path) -> None:
    """Lightning puts a mock in its place, which steps."""

    class Frozen(Model):
        def configure_optimizers(self) -> Any:
            return None

    with pytest.warns(UserWarning, match="no optimizer"):
        ran = fit(tmp_path, Frozen(), Loader(4))
    assert ran.micro_batches() == [1] * 4


def test_the_time_of_each_hook_is_kept_by_its_name_and_none_of_ours(tmp_path: Path) -> None:
    """A report can say whose it is; not of what is exported, of `trainperf run`, or derived."""

    class Derived(StepTimeMonitor):
        pass

    # `fit` attaches a TrainPerf itself.
    names = set(trainperf.lightning.__all__) - {"TrainPerf"}
    exported = [getattr(trainperf.lightning, name) for name in sorted(names)]
    ours = [make() for make in (*exported, AutoTrainPerf, Derived)]
    sleeper = Pause(0.004)
    ran = planted(tmp_path, Model(), Loader(6), *ours, At("on_train_batch_end", sleeper))

    spent = ran.totals.actions_ns["At.on_train_batch_end"]
    assert sum(sleeper.slept_ns) == spent == sum(ran.phase_ns(Phase.CALLBACKS))
    callbacks = {label for label in ran.totals.actions_ns if not label.startswith("Model.")}
    assert callbacks == {"At.on_train_batch_end"}
