"""The doors through which a story is told: each runs the real loop of its framework."""

import signal
import sys
from collections import UserDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import transformers
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins import MixedPrecision
from support.conformance.planted import Batch, Planted, Rows
from support.conformance.story import Story, fits_of
from support.fits import QUIET
from support.loops import Written, on_clock, read, update
from support.outside import hearing
from transformers import TrainerCallback, TrainingArguments

from trainperf.core.launch_environment import LaunchOptions
from trainperf.core.machine.clocks import HostClock, monotonic_ns
from trainperf.huggingface import TrainPerfCallback
from trainperf.lightning import TrainPerf
from trainperf.loop import LoopMonitor
from trainperf.loop.fit import Fit
from trainperf.plugins import outside_loader
from trainperf.testing import FakeClock


SILENT: dict[str, Any] = {"report": False, "lines": False, "machine": False}


@contextmanager
def caught(planted: Planted, *others: type[BaseException]) -> Iterator[None]:
    """The error that the story ends with must come through; then the fit is over."""
    if planted.story.raises is None:
        yield
        return
    with pytest.raises((planted.story.error, *others)):
        yield


class Door:
    """One kind of loop.  Several fits of one door are trained in the same process.

    Args:
        path: Where runs go.
        clock: Of the fits, which the story moves; the machine's, where they are to be sampled.
        options: Of the fits, where they have any.
    """

    name = ""
    fit = ""
    """Where it makes its `Fit`."""

    def __init__(self, path: Path, clock: HostClock, options: dict[str, Any]) -> None:
        self.path, self.clock, self.options = path, clock, options
        self.fits: list[Fit] = []
        self.parts: list[object] = []
        """Modules, optimizers and other objects of the latest fit that hooks are put on."""
        self.replaceable: dict[str, tuple[Callable[[], object], object]] = {}
        """What is there for a while in another's place: how to read it, and what it was."""

    def keep(self, name: str, read: Callable[[], object]) -> None:
        """Something that may be replaced while the fit goes on."""
        self.replaceable[name] = read, read()

    @contextmanager
    def open(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Have its fits run on the fake clock."""
        clock, fits = self.clock, self.fits

        class OnFakeClock(on_clock(clock)):  # type: ignore[misc]  # one for each
            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                fits.append(self)

            def _report(self, *_: object, **__: object) -> None:
                """A report is made of records, which are compared themselves."""

        if clock is not monotonic_ns:
            patch.setattr(self.fit, OnFakeClock)
        yield

    def train(self, planted: Planted) -> None:
        """One fit, to its end or to its error."""
        raise NotImplementedError

    def runs(self) -> list[Written]:
        """What was left, in the order of the fits."""
        folders = sorted(self.path.glob("**/trainperf*/steps-rank0.jsonl"), key=lambda f: f.parts)
        return [read(file) for file in folders]


class Plain(Door):
    """A loop of one's own with a `LoopMonitor`."""

    name = "LoopMonitor"
    fit = "trainperf.loop.monitor.Fit"

    def train(self, planted: Planted) -> None:
        """As in the documentation."""
        models = [planted.model() for _ in range(planted.story.optimizers)]
        optimizers, scaler = [planted.optimizer(model) for model in models], planted.scaler()
        self.parts = [*models, *optimizers]
        monitor = LoopMonitor(self.path, clock=self.clock, **self.options)
        monitor.watch(models, optimizers, scaler)
        planted.spend("startup")
        with caught(planted), monitor:
            for _ in range(planted.epochs):
                for batch in monitor.batches(planted.loader()):
                    with monitor.phase("h2d"):
                        planted.copy()
                    closes = planted.will_close
                    for model, optimizer in zip(models, optimizers, strict=True):
                        with monitor.phase("forward"):
                            loss = model(**batch)["loss"]
                        with monitor.phase("backward"):
                            (loss if scaler is None else scaler.scale(loss)).backward()
                        if closes:
                            with monitor.phase("optimizer"):
                                update(optimizer, scaler)
                    if closes:
                        monitor.end_step(loss)
                    with monitor.phase("callbacks"):
                        planted.after()
                    if closes:
                        self._pauses(monitor, planted, models[0])
                planted.spend("epoch_end")

    def _pauses(self, monitor: LoopMonitor, planted: Planted, model: torch.nn.Module) -> None:
        if planted.validates:
            with monitor.phase("validation"):
                planted.validate(model)
                if planted.story.saves_inside:
                    with monitor.phase("checkpoint"):
                        planted.spend("save")
        if planted.saves:
            with monitor.phase("checkpoint"):
                planted.spend("save")


class Outside(Door):
    """A loop that knows nothing of us, under `trainperf run`."""

    name = "from outside"
    fit = "trainperf.plugins.outside_loop.Fit"

    @contextmanager
    def open(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Hear of its updates, and of no loader: Python tells of them from 3.12 on only."""
        launched = LaunchOptions(dirpath=str(self.path), **self.options)
        self.patch = patch
        patch.setattr(outside_loader, "TOOLS", ())
        with super().open(patch), hearing(launched) as self.updates:
            yield

    def train(self, planted: Planted) -> None:
        """As its author wrote it."""
        try:
            with caught(planted):
                self._script(planted)
        finally:
            if planted.story.raises is not None:
                error = planted.story.error("planted")
                self.patch.setattr(sys, "last_value", error, raising=False)
                self.updates.loop.fit._at_exit()

    def _script(self, planted: Planted) -> None:
        models = [planted.model() for _ in range(planted.story.optimizers)]
        optimizers, scaler = [planted.optimizer(model) for model in models], planted.scaler()
        self.parts = [*models, *optimizers]
        loader = planted.loader()
        planted.spend("startup")
        for _ in range(planted.epochs):
            for batch in loader:
                planted.copy()
                closes = planted.will_close
                for model, optimizer in zip(models, optimizers, strict=True):
                    loss = model(**batch)["loss"]
                    (loss if scaler is None else scaler.scale(loss)).backward()
                    if closes:
                        update(optimizer, scaler)
                planted.after()
                if closes and planted.validates:
                    planted.validate(models[0])
                    if planted.story.saves_inside:
                        planted.spend("save")
                if closes and planted.saves:
                    planted.spend("save")
            planted.spend("epoch_end")


class Module(pl.LightningModule):
    """The planted models as Lightning trains them."""

    def __init__(self, planted: Planted) -> None:
        super().__init__()
        self.planted = planted
        self.models = torch.nn.ModuleList(planted.model() for _ in range(planted.story.optimizers))
        self.automatic_optimization = planted.story.optimizers == 1

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        """After a while, in training."""
        if self.trainer.training:
            self.planted.copy()
        return batch

    def training_step(self, batch: Batch, batch_idx: int) -> Any:
        """The loss; with several optimizers all of the step."""
        if self.automatic_optimization:
            return self.models[0](**batch)["loss"]
        loss = None
        for model, optimizer in zip(self.models, self.optimizers(), strict=True):
            loss = model(**batch)["loss"]
            self.manual_backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """A forward."""
        self.models[0](**batch)

    def configure_optimizers(self) -> Any:
        """One for each model."""
        return [self.planted.optimizer(model) for model in self.models]

    def train_dataloader(self) -> Any:
        """Batches of an epoch."""
        return self.planted.loader()

    def val_dataloader(self) -> Any:
        """Batches of a validation, where there is one."""
        return self.planted.validation_loader() if self.planted.story.validates else []

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """It takes a while."""
        self.planted.spend("save")


class Told(Callback):
    """What a user does around training."""

    def __init__(self, planted: Planted, path: Path) -> None:
        self.planted, self.path = planted, path

    def on_fit_start(self, *_: object) -> None:
        """Before the first batch."""
        self.planted.spend("startup")

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        """After a micro-batch."""
        if self.planted.after() and self.planted.saves:
            trainer.save_checkpoint(self.path / "saved.ckpt")

    def on_validation_end(self, trainer: pl.Trainer, *_: object) -> None:
        """As `ModelCheckpoint` does."""
        if self.planted.story.saves_inside:
            trainer.save_checkpoint(self.path / "saved.ckpt")

    def on_train_epoch_end(self, *_: object) -> None:
        """Between two epochs."""
        self.planted.spend("epoch_end")


class Lightning(Door):
    """A Lightning `Trainer` with `TrainPerf`."""

    name = "Lightning"
    fit = "trainperf.lightning.measurement.Fit"

    @contextmanager
    def open(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """The same callback for all fits; Lightning leaves Ctrl-C ignored."""
        self.callback = TrainPerf(dirpath=str(self.path), **self.options)
        handler = signal.getsignal(signal.SIGINT)
        with super().open(patch):
            yield
        signal.signal(signal.SIGINT, handler)

    def train(self, planted: Planted) -> None:
        """With a Trainer that does nothing but train."""
        story, scaler = planted.story, planted.scaler()
        plugins = [MixedPrecision("16-mixed", "cpu", scaler)] if scaler else []
        self.trainer = pl.Trainer(
            **{**QUIET, "max_epochs": story.epochs, "default_root_dir": self.path},
            accumulate_grad_batches=story.accumulation,
            val_check_interval=story.validates or 1.0,
            limit_val_batches=None if story.validates else 0,
            callbacks=[self.callback, Told(planted, self.path)],
            plugins=plugins,
        )
        trainer, module = self.trainer, Module(planted)
        self.keep("profiler", lambda: trainer.profiler)
        resumed = self.path / "saved.ckpt" if planted.first_epoch else None
        with caught(planted, SystemExit):
            trainer.fit(module, ckpt_path=resumed, weights_only=False)
        self.parts = [*module.modules(), *trainer.optimizers, trainer]


class Moving(UserDict[str, torch.Tensor]):
    """A batch whose copy takes a while."""

    planted: Planted

    def to(self, *_: object, **__: object) -> "Moving":
        """As Accelerate moves it."""
        self.planted.copy()
        return self

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # from a worker without what is planted


class ToldThere(TrainerCallback):
    """What a user does around training."""

    def __init__(self, planted: Planted) -> None:
        self.planted = planted

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Before the first batch."""
        self.planted.spend("startup")

    def on_step_end(self, *_: object, **__: object) -> None:
        """After a step."""
        self.planted.after()

    on_substep_end = on_step_end

    def on_epoch_end(self, *_: object, **__: object) -> None:
        """Between two epochs."""
        self.planted.spend("epoch_end")


class HuggingFace(Door):
    """A Hugging Face `Trainer` with `TrainPerfCallback`."""

    name = "Hugging Face"
    fit = "trainperf.huggingface.callback.Fit"

    @contextmanager
    def open(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """The same callback for all fits."""
        with super().open(patch):
            self.callback = TrainPerfCallback(dirpath=str(self.path), **self.options)
            yield

    def train(self, planted: Planted) -> None:
        """With a Trainer that does nothing but train."""
        model = planted.model()
        optimizer = planted.optimizer(model)
        self.trainer = self._trainer(planted, model, optimizer)
        self.parts = [model, optimizer, self.trainer.accelerator, self.trainer]
        if (scaler := planted.scaler()) is not None:
            self.trainer.accelerator.scaler = scaler
        saved = sorted((self.path / "out").glob("checkpoint-*"))
        with caught(planted), self.callback:
            self.trainer.train(resume_from_checkpoint=saved[-1] if planted.first_epoch else None)

    def _trainer(self, planted: Planted, model: Any, optimizer: Any) -> transformers.Trainer:
        door = self

        class Trainer(transformers.Trainer):
            def get_train_dataloader(self) -> Any:
                def wrap(batch: Batch) -> Moving:
                    moving = Moving(batch)
                    moving.planted = planted
                    return moving

                if story.loader == "none":
                    return planted.loader()
                loader = self.accelerator.prepare(planted.loader(wrap))
                loader.device = torch.device("meta")  # on a CPU nothing is copied
                door.keep("base_dataloader", lambda: loader.base_dataloader)
                door.keep("backward", lambda: vars(self.accelerator).get("backward"))
                return loader

            def get_eval_dataloader(self, *_: object) -> Any:
                return planted.validation_loader()

            def _save(self, *args: Any, **options: Any) -> None:
                planted.spend("save")
                super()._save(*args, **options)

        story = planted.story
        steps = story.epochs * -(-story.batches // story.accumulation)
        arguments = TrainingArguments(
            str(self.path / "out"),
            num_train_epochs=story.epochs,
            max_steps=steps if story.loader == "unknown" else -1,
            gradient_accumulation_steps=story.accumulation,
            eval_strategy="steps" if story.validates else "no",
            eval_steps=story.validates or None,
            save_strategy="steps" if story.saves else "no",
            save_steps=story.saves or 500,
            **QUIET_THERE,
        )
        scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
        return Trainer(
            model=model,
            args=arguments,
            callbacks=[self.callback, ToldThere(planted)],
            eval_dataset=Rows(1),
            optimizers=(optimizer, scheduler),
        )


QUIET_THERE: dict[str, Any] = {
    "per_device_train_batch_size": 2,
    "report_to": "none",
    "use_cpu": True,
    "disable_tqdm": True,
    "logging_strategy": "no",
    "remove_unused_columns": False,
    "prediction_loss_only": True,
    "max_grad_norm": 0.0,
}

DOORS: tuple[type[Door], ...] = (Plain, Lightning, HuggingFace, Outside)


def tell(
    story: Story,
    kind: type[Door],
    path: Path,
    patch: pytest.MonkeyPatch,
    look: Callable[[Planted, Door], object] | None = None,
) -> Door:
    """Train what a story says.

    Args:
        story: What happens.
        kind: The door.
        path: Where runs go.
        patch: Undone by the test.
        look: Called in the callback of each step.
    """
    clock = FakeClock()
    door = kind(path, clock, {} if kind is Outside else SILENT)
    with door.open(patch):
        for fit, first_epoch in fits_of(story):
            planted = Planted(fit, clock, first_epoch)
            if look is not None:
                planted.look = partial(look, planted, door)
            door.train(planted)
    return door
