"""Training under a Trainer, as trials see it: in a process that is thrown away.

Steps go on without end, and nothing comes between them: no end of the epoch or of the fit, no
validation, no scheduler.  Nothing is saved, and nothing of it is logged where people look.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Checkpoint, ProgressBar, Timer
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher
from typing_extensions import override

from trainperf.core.errors import ConfigError
from trainperf.loop.fit import Fit, FitFacts
from trainperf.loop.trials import FitTraining
from trainperf.recording.process_objects import nothing
from trainperf.trials.training import drop_gradients
from trainperf.trials.trial import Trial


log = logging.getLogger("trainperf")

MANY = 10**9
"""Batches of an epoch that never ends; progress bars divide by it, and cannot by infinity."""

_FILES = (TensorBoardLogger, CSVLogger)
"""Loggers that write files, which can as well be written elsewhere, at equal cost."""


def dispose_of(trainer: "pl.Trainer", closing: ExitStack) -> None:
    """Have nothing kept of a Trainer that is about to fit: its files go where they are removed.

    Args:
        trainer: Which it is.
        closing: Removes what was written, as the fit is over.

    Raises:
        ConfigError: The process that runs the script cannot be ended from within the fit.
    """
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        raise ConfigError(
            "trainperf try cannot end a script whose ranks are spawned or forked by the Trainer; "
            'try Trainer(strategy="ddp")'
        )
    folder = closing.enter_context(TemporaryDirectory(prefix="trainperf-trials-"))
    own = list(trainer.loggers)
    loggers = [_stand_in(logger, folder, str(place)) for place, logger in enumerate(own)]
    for logger in loggers:
        closing.callback(logger.finalize, "")
    # The stand-ins of a tuner's fit are still there in the one after it.
    heard = (*_FILES, DummyLogger)
    silent = [type(logger).__name__ for logger in own if type(logger) not in heard]
    if silent:
        log.warning("trainperf: nothing more is logged to %s in this run", ", ".join(silent))
    trainer.loggers = loggers
    for logger in own if trainer.is_global_zero else ():
        if isinstance(logger, TensorBoardLogger | CSVLogger):
            _remove_files(logger)
    # Nothing is saved, or removed because another was; no clock ends the fit.
    trainer.callbacks = [
        each for each in trainer.callbacks if not isinstance(each, Checkpoint | Timer)
    ]


def _stand_in(own: Logger, folder: str, name: str) -> Logger:
    if type(own) is TensorBoardLogger:
        return TensorBoardLogger(folder, name=name, version="")
    if type(own) is CSVLogger:
        return CSVLogger(
            folder,
            name,
            version="",
            flush_logs_every_n_steps=getattr(own, "_flush_logs_every_n_steps", 100),
        )
    return DummyLogger()


class SavesNothing(TorchCheckpointIO):
    """No checkpoint is written or removed."""

    @override
    def save_checkpoint(self, *_: object, **__: object) -> None:
        """Nothing is written."""

    @override
    def remove_checkpoint(self, *_: object) -> None:
        """Nothing is removed."""


class LightningTraining(FitTraining):
    """The fit of a Trainer.

    Args:
        fit: Which it is.
        facts: What it consists of; its loaders and optimizers exist.
        trainer: Whose it is.
    """

    autocast_line = 'Trainer(precision="bf16-mixed")'
    logs_values = True
    base = pl.Callback
    essential = (ProgressBar,)  # the thread of one looks for it among the callbacks
    step_hooks = (
        "on_train_batch_start",
        "on_train_batch_end",
        "on_before_zero_grad",
        "on_before_backward",
        "on_after_backward",
        "on_before_optimizer_step",
    )

    def __init__(self, fit: Fit, facts: FitFacts, trainer: "pl.Trainer") -> None:
        # `training_step` may take `dataloader_iter` and fetch by itself; several loaders may be
        # combined to a batch.
        by_itself = hasattr(_fetcher(trainer), "iterator_wrapper")
        taken = len(iterators_of(trainer)) == 1 and not by_itself
        super().__init__(fit, replace(facts, takes_batches=taken), [trainer])
        self.module: pl.LightningModule = trainer.lightning_module
        self.logs_every = trainer, "log_every_n_steps"
        # A model may log by itself, so that there must be something to log to.
        log_to = trainer.loggers.__setitem__
        self.loggers = [
            Trial(
                type(logger).__name__,
                partial(log_to, place, DummyLogger()),
                partial(log_to, place, logger),
            )
            for place, logger in enumerate(trainer.loggers)
            if type(logger) in _FILES
        ]
        for bar in trainer.callbacks:
            if isinstance(bar, ProgressBar):
                # One that shows nothing, as on ranks but the first, goes on so.
                shown = getattr(bar, "is_enabled", True)
                switches = (bar.disable, bar.enable) if shown else (nothing, nothing)
                self.callbacks.append(Trial(type(bar).__name__, *switches))
        self._trainer = trainer
        self._precision = trainer.precision_plugin
        self.computes_in_half |= type(self._precision) is not Precision
        self._drops_gradients = False
        self._run_without_end()
        self.step_ended()

    # -- the loop -----------------------------------------------------------------------------

    @override
    def step_ended(self) -> None:
        """Be between the loop and its loader: each epoch has an iterator of its own."""
        iterators = iterators_of(self._trainer)
        if not self.no_batches and iterators and iterators[0] is not self.batches:
            iterators[0] = self.batches.over(iterators[0])

    def _run_without_end(self) -> None:
        """No limit on steps and epochs, no validation, no checkpoint, no step of a scheduler.

        Between two steps it would be too late: Lightning may have a batch in hand by then.
        """
        trainer, fetcher = self._trainer, _fetcher(self._trainer)
        trainer.fit_loop.max_epochs = trainer.fit_loop.epoch_loop.max_steps = -1
        trainer.fit_loop.max_batches = MANY
        trainer.limit_val_batches = 0
        for config in trainer.lr_scheduler_configs:
            config.frequency = MANY
        if isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
            trainer.strategy.checkpoint_io = SavesNothing()  # others save in their own way
        if fetcher.length is None and hasattr(fetcher, "batches"):
            fetcher.batches = []  # a switch between two steps must hold from the next batch on
        fetcher.length, fetcher.done = None, False

    @override
    def end(self) -> None:
        super().end()
        if not self.no_batches:
            self.step_ended()
            return
        self._trainer.fit_loop.min_epochs = 0
        self._trainer.fit_loop.epoch_loop.min_steps = None
        self._trainer.should_stop = True

    def before_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Backward is over, and *optimizer* steps: with nothing, while its update is muted."""
        if self._drops_gradients:
            drop_gradients(optimizer)

    # -- what can be switched -------------------------------------------------------------------

    @override
    def set_autocast(self, dtype: torch.dtype | None) -> None:
        """As `Trainer(precision=…)` does, for the whole training step."""
        plugin = self._precision
        if dtype is not None:
            plugin = MixedPrecision(
                "bf16-mixed" if dtype is torch.bfloat16 else "16-mixed", self.device.type
            )
        self._trainer.strategy.precision_plugin = plugin

    @override
    def mute_update(self, *, mute: bool) -> None:
        """As without Lightning; but in automatic optimization backward runs inside the update."""
        if self.module.automatic_optimization:
            self._drops_gradients = mute
        else:
            super().mute_update(mute=mute)

    @override
    def set_values_interval(self, steps: int) -> None:
        """Have the module's `log` do something in every so many steps; in none where it is 0."""
        own = vars(self.module)
        own.pop("log", None)
        logs = self.module.log

        def rarely(*args: Any, **options: Any) -> None:  # noqa: ANN401 its own
            if steps and self._fit.recorder.index % steps == 0:
                logs(*args, **options)

        if steps != 1:
            own["log"] = rarely


def iterators_of(trainer: "pl.Trainer") -> list[Iterator[Any]]:
    """The loop's iterators of this epoch, one for each loader, to be replaced in place."""
    # A `CombinedLoader` shows its loaders, not their iterators.
    mode = getattr(trainer.fit_loop._combined_loader, "_iterator", None)  # noqa: SLF001 no other way
    return cast("list[Iterator[Any]]", getattr(mode, "iterators", []))


def _fetcher(trainer: "pl.Trainer") -> Any:  # noqa: ANN401 not a public class
    return trainer.fit_loop._data_fetcher  # noqa: SLF001 no other way


def _remove_files(logger: TensorBoardLogger | CSVLogger) -> None:
    """What a logger of files has written: Lightning opens it before any callback is asked."""
    folder = Path(logger.log_dir)
    if isinstance(logger, TensorBoardLogger):
        logger.experiment.close()
        # Written into the name by TensorBoard: host, process, number.
        for file in folder.glob(f"events.out.tfevents.*.{os.getpid()}.*"):
            file.unlink(missing_ok=True)
    for empty in (folder, Path(logger.root_dir), Path(logger.save_dir)):
        with suppress(OSError):  # it holds more, or was never made
            empty.rmdir()
