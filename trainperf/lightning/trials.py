"""Training under a Trainer, as trials see it: in a process that is thrown away.

Steps go on without end, and nothing comes between them: no end of the epoch or of the fit, no
validation, no scheduler.  Nothing is saved, and nothing of it is logged where people look.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, cast

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    Checkpoint,
    LearningRateFinder,
    ProgressBar,
    Timer,
)
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from trainperf.core.errors import ConfigError
from trainperf.core.loop_kind import LIGHTNING
from trainperf.lightning.actions import overrides
from trainperf.trials.batch_source import BatchSource
from trainperf.trials.training import Mutable, Training, outermost_layers


log = logging.getLogger("trainperf")

MANY = 10**9
"""Batches of an epoch that never ends; progress bars divide by it, and cannot by infinity."""

_TUNERS = (BatchSizeFinder, LearningRateFinder)
"""They save and load a checkpoint of their own before the first step, or in place of one."""

_STEP_HOOKS = (
    "on_train_batch_start",
    "on_train_batch_end",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
)

_FILES = (TensorBoardLogger, CSVLogger)
"""Loggers that write files, which can as well be written elsewhere, at equal cost."""


class DisposableTrainer:
    """A Trainer of which nothing is kept: its files go where they are removed.

    Args:
        trainer: That is about to fit.

    Raises:
        ConfigError: The process that runs the script cannot be ended from within the fit.
    """

    def __init__(self, trainer: "pl.Trainer") -> None:
        _demand_own_process(trainer)
        self._own = list(trainer.loggers)
        self._folder = TemporaryDirectory(prefix="trainperf-trials-")
        self.loggers = [self._stand_in(place) for place in range(len(self._own))]
        """What is logged to."""
        # The stand-ins of a tuner's fit are still there in the one after it.
        heard = (*_FILES, DummyLogger)
        silent = [type(logger).__name__ for logger in self._own if type(logger) not in heard]
        if silent:
            log.warning("trainperf: nothing more is logged to %s in this run", ", ".join(silent))
        trainer.loggers = self.loggers
        self._writes = trainer.is_global_zero
        self._remove_own()
        # Nothing is saved, or removed because another was; no clock ends the fit.
        trainer.callbacks = [
            each for each in trainer.callbacks if not isinstance(each, Checkpoint | Timer)
        ]
        self._strategy = trainer.strategy
        if not tunes(trainer):
            self.save_nothing()

    def save_nothing(self) -> None:
        """Its first step comes: no checkpoint is written any more."""
        strategy = self._strategy
        if isinstance(strategy, SingleDeviceStrategy | DDPStrategy):  # others save in their own way
            strategy.checkpoint_io = ReadsOnly(strategy.checkpoint_io)

    def remove_files(self) -> None:
        """The fit is over: remove what was written in it."""
        for logger in self.loggers:
            logger.finalize("")
        self._folder.cleanup()
        self._remove_own()

    def _remove_own(self) -> None:
        for logger in self._own if self._writes else ():
            _remove_files(logger)

    def _stand_in(self, place: int) -> Logger:
        own, folder = self._own[place], self._folder.name
        if type(own) is TensorBoardLogger:
            return TensorBoardLogger(folder, name=str(place), version="")
        if type(own) is CSVLogger:
            every = getattr(own, "_flush_logs_every_n_steps", 100)
            return CSVLogger(folder, name=str(place), version="", flush_logs_every_n_steps=every)
        return DummyLogger()


class ReadsOnly(CheckpointIO):
    """Checkpoints can be read, and none is written or removed.

    Args:
        inner: Reads them.
    """

    def __init__(self, inner: CheckpointIO) -> None:
        self._inner = inner

    @override
    def save_checkpoint(
        self, checkpoint: object, path: object, storage_options: object = None
    ) -> None:
        """Nothing is written."""

    @override
    def load_checkpoint(self, path: Any, *args: Any, **options: Any) -> Any:
        """As the one inside."""
        return self._inner.load_checkpoint(path, *args, **options)

    @override
    def remove_checkpoint(self, path: object) -> None:
        """Nothing is removed."""


class ModuleLog:
    """`self.log` of a module, which can be had as rarely as is tried: else it does nothing.

    Args:
        module: Whose it is.
    """

    def __init__(self, module: "pl.LightningModule") -> None:
        self._module = module
        self._own: Callable[..., object] = module.log
        self._every = 1
        self._step = 0

    def step_ended(self) -> None:
        """Another step begins.  Runs every step."""
        self._step += 1

    def set_interval(self, steps: int) -> None:
        """Log in every so many steps only; in none where it is 0."""
        self._every = steps
        if steps == 1:
            self._module.__dict__.pop("log", None)
        else:
            self._module.__dict__["log"] = self._log

    def _log(self, *args: object, **options: object) -> None:
        if self._every and self._step % self._every == 0:
            self._own(*args, **options)


class LightningTraining(Training):
    """The fit of a Trainer.

    Args:
        trainer: Whose fit it is; its loaders and optimizers exist.
        source: Its batches, if they can be taken over.
        loggers: What is logged to.
    """

    kind = LIGHTNING
    autocast_line = 'Trainer(precision="bf16-mixed")'

    def __init__(
        self, trainer: "pl.Trainer", source: BatchSource | None, loggers: Sequence[Logger]
    ) -> None:
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        super().__init__(
            trainer.lightning_module,
            trainer.optimizers,
            trainer.strategy.root_device,
            None if no_source(trainer) else source,
            trainer.accumulate_grad_batches,  # 1 where the module optimizes by itself
            others=[config.scheduler for config in trainer.lr_scheduler_configs]
            + ([scaler] if scaler is not None else []),
        )
        self._trainer = trainer
        self._loggers = loggers
        self._module_log = ModuleLog(trainer.lightning_module)
        self._callbacks: list[pl.Callback] = list(trainer.callbacks)
        self._muted: list[pl.Callback] = []
        self._hidden: list[ProgressBar] = []
        self._precision = trainer.precision_plugin
        self._mixed: dict[torch.dtype, MixedPrecision] = {}
        self._drops_gradients = False
        self._run_without_end()
        self.step_ended()

    # -- the loop -----------------------------------------------------------------------------

    @override
    def step_ended(self) -> None:
        """Be between the loop and its loader: each epoch has an iterator of its own."""
        self._module_log.step_ended()
        iterators = iterators_of(self._trainer)
        if self.source is not None and iterators and iterators[0] is not self.source:
            iterators[0] = self.source.over(iterators[0])

    def _run_without_end(self) -> None:
        """No limit on steps and epochs, no validation, and no step of a scheduler, with its limit.

        Between two steps it would be too late: Lightning may have a batch in hand by then.
        """
        trainer, fetcher = self._trainer, _fetcher(self._trainer)
        trainer.fit_loop.max_epochs = trainer.fit_loop.epoch_loop.max_steps = -1
        trainer.fit_loop.max_batches = MANY
        trainer.limit_val_batches = 0
        for config in trainer.lr_scheduler_configs:
            config.frequency = MANY
        if fetcher.length is None and hasattr(fetcher, "batches"):
            fetcher.batches = []  # a switch between two steps must hold from the next batch on
        fetcher.length, fetcher.done = None, False

    @override
    def end(self) -> None:
        if self.source is not None:
            self.step_ended()
            self.source.end()
            return
        self._trainer.fit_loop.min_epochs = 0
        self._trainer.fit_loop.epoch_loop.min_steps = None
        self._trainer.should_stop = True

    def before_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Backward is over, and *optimizer* steps: with nothing, while its update is muted."""
        if self._drops_gradients:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None

    # -- what can be switched -------------------------------------------------------------------

    @override
    def set_autocast(self, dtype: torch.dtype | None) -> None:
        """As `Trainer(precision=…)` does, for the whole training step."""
        if dtype is None:
            self._trainer.strategy.precision_plugin = self._precision
            return
        if dtype not in self._mixed:
            self._mixed[dtype] = MixedPrecision(
                "bf16-mixed" if dtype is torch.bfloat16 else "16-mixed", self.device.type
            )
        self._trainer.strategy.precision_plugin = self._mixed[dtype]

    @property
    @override
    def computes_in_half(self) -> bool:
        return type(self._precision) is not Precision or super().computes_in_half

    @override
    def mute_update(self, *, mute: bool) -> None:
        """As without Lightning; but in automatic optimization backward runs inside the update."""
        if self._trainer.lightning_module.automatic_optimization:
            self._drops_gradients = mute
        else:
            super().mute_update(mute=mute)

    @override
    def loggers(self) -> list[Mutable]:
        return [
            Mutable(
                type(logger).__name__,
                partial(self._log_to, place, DummyLogger()),
                partial(self._log_to, place, logger),
            )
            for place, logger in enumerate(self._loggers)
            if type(logger) in _FILES
        ]

    @override
    def values_logged(self) -> Mutable:
        silence = self._module_log.set_interval
        return Mutable("self.log", partial(silence, 0), partial(silence, 1))

    @override
    def callbacks(self) -> list[Mutable]:
        """Those of the user's that do something in a step; progress bars are among them."""
        return [
            Mutable(
                type(callback).__name__,
                partial(self._mute, callback, mute=True),
                partial(self._mute, callback, mute=False),
            )
            for callback in self._trainer.callbacks
            if not type(callback).__module__.startswith("trainperf.") and _acts_in_steps(callback)
        ]

    @override
    def logging_interval(self) -> int | None:
        return int(self._trainer.log_every_n_steps)

    @override
    def set_logging_interval(self, steps: int) -> None:
        self._trainer.log_every_n_steps = steps

    @override
    def set_values_interval(self, steps: int) -> None:
        self._module_log.set_interval(steps)

    @property
    @override
    def data_parallel(self) -> DistributedDataParallel | None:
        model = self._trainer.model
        return model if isinstance(model, DistributedDataParallel) else None

    @override
    def parts_to_compile(self) -> list[nn.Module]:
        return outermost_layers(self.module)

    def _log_to(self, place: int, logger: Logger) -> None:
        # A model may log by itself, so that there must be something to log to.
        loggers = list(self._trainer.loggers)
        loggers[place] = logger
        self._trainer.loggers = loggers

    def _mute(self, callback: "pl.Callback", *, mute: bool) -> None:
        if isinstance(callback, ProgressBar):  # its thread looks for it among the callbacks
            self._hide(callback, hide=mute)
            return
        if mute:
            self._muted.append(callback)
        elif callback in self._muted:
            self._muted.remove(callback)
        self._trainer.callbacks = [c for c in self._callbacks if c not in self._muted]

    def _hide(self, bar: ProgressBar, *, hide: bool) -> None:
        """One that shows nothing, as on all ranks but the first, does not begin to."""
        if hide and getattr(bar, "is_enabled", True):
            bar.disable()
            self._hidden.append(bar)
        elif not hide and bar in self._hidden:
            self._hidden.remove(bar)
            bar.enable()


def _demand_own_process(trainer: "pl.Trainer") -> None:
    """The process that runs the script must be one that can be ended from within the fit."""
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        raise ConfigError(
            "trainperf try cannot end a script whose ranks are spawned or forked by the Trainer; "
            'try Trainer(strategy="ddp")'
        )


def tunes(trainer: "pl.Trainer") -> bool:
    """Whether something is tuned in its fit, which may be over without a step of its own."""
    return any(isinstance(each, _TUNERS) for each in trainer.callbacks)


def no_source(trainer: "pl.Trainer") -> str:
    """Why the Trainer's batches cannot be taken over; empty if they can."""
    if hasattr(_fetcher(trainer), "iterator_wrapper"):
        return "training_step takes dataloader_iter and fetches by itself"
    loaders = len(iterators_of(trainer))
    return "" if loaders == 1 else f"{loaders} loaders are combined to a batch"


def _acts_in_steps(callback: "pl.Callback") -> bool:
    return any(overrides(callback, pl.Callback, hook) for hook in _STEP_HOOKS)


class Fetcher(Protocol):
    """What is used of Lightning's fetcher of batches."""

    batches: list[Any]
    done: bool
    length: int | None


def iterators_of(trainer: "pl.Trainer") -> list[Iterator[Any]]:
    """The loop's iterators of this epoch, one for each loader, to be replaced in place."""
    # A `CombinedLoader` shows its loaders, not their iterators.
    mode = getattr(trainer.fit_loop._combined_loader, "_iterator", None)  # noqa: SLF001 no other way
    return cast("list[Iterator[Any]]", getattr(mode, "iterators", []))


def _fetcher(trainer: "pl.Trainer") -> Fetcher:
    return cast("Fetcher", trainer.fit_loop._data_fetcher)  # noqa: SLF001 no other way


def _remove_files(logger: Logger) -> None:
    """What a logger of files has written: Lightning opens it before any callback is asked."""
    if not isinstance(logger, TensorBoardLogger | CSVLogger):
        return
    folder = Path(logger.log_dir)
    if isinstance(logger, TensorBoardLogger):
        logger.experiment.close()
        # Written into the name by TensorBoard: host, process, number.
        for file in folder.glob(f"events.out.tfevents.*.{os.getpid()}.*"):
            file.unlink(missing_ok=True)
    for empty in (folder, Path(logger.root_dir), Path(logger.save_dir)):
        with suppress(OSError):  # it holds more, or was never made
            empty.rmdir()
