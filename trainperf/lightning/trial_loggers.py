"""Loggers that stand in for the user's while changes are tried: nothing of a trial is logged there.

TensorBoard and CSV files are written as they would be, at equal cost, to a folder of the run
that is removed afterwards; any other logger is silent.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.loggers.logger import DummyLogger

from trainperf.trials.training import Mutable


FOLDER = "trial_logs"

_FILES = (TensorBoardLogger, CSVLogger)
"""Loggers that write files, which can as well be written elsewhere."""


class TrialLoggers:
    """The loggers of a Trainer, and what stands in for them.

    Args:
        trainer: Whose they are.
        run: The run directory; `None` where there is none, so that all are silent.
        ends: Whether the user's are not logged to again, because the process ends.
    """

    def __init__(self, trainer: "pl.Trainer", run: Path | None, *, ends: bool) -> None:
        self._trainer = trainer
        self._ends = ends
        self._folder = run / FOLDER if run is not None else None
        self._own = list(trainer.loggers)
        self._now = self._own
        self._muted: set[int] = set()

    def silent(self) -> str:
        """Names of those that nothing stands in for."""
        return ", ".join(
            type(logger).__name__ for logger in self._own if type(logger) not in _FILES
        )

    def put_in(self) -> None:
        """From now on the stand-ins are logged to."""
        if self._now is not self._own:
            return
        self._now = [self._stand_in(place) for place in range(len(self._own))]
        self._apply()

    def take_out(self) -> None:
        """From now on the user's are logged to again; what the stand-ins wrote is removed."""
        if self._now is not self._own:
            for logger in self._now:
                logger.finalize("")
        self._now = [] if self._ends else self._own
        self._muted.clear()
        self._apply()
        if self._folder is not None and self._trainer.is_global_zero:
            shutil.rmtree(self._folder, ignore_errors=True)

    def remove_own(self) -> None:
        """Remove what the user's have written in this process."""
        if self._trainer.is_global_zero:
            for logger in self._own:
                _remove_files(logger)

    def mutable(self) -> list[Mutable]:
        """Those whose cost can be measured."""
        return [
            Mutable(
                type(logger).__name__,
                partial(self._mute, place, mute=True),
                partial(self._mute, place, mute=False),
            )
            for place, logger in enumerate(self._own)
            if type(logger) in _FILES
        ]

    def _mute(self, place: int, *, mute: bool) -> None:
        (self._muted.add if mute else self._muted.discard)(place)
        self._apply()

    def _apply(self) -> None:
        # A model may log by itself, so that there must be something to log to.
        self._trainer.loggers = [
            DummyLogger() if place in self._muted else logger
            for place, logger in enumerate(self._now)
        ]

    def _stand_in(self, place: int) -> Logger:
        own = self._own[place]
        if self._folder is None:
            return DummyLogger()
        if type(own) is TensorBoardLogger:
            return TensorBoardLogger(self._folder, name=str(place), version="")
        if type(own) is CSVLogger:
            every = getattr(own, "_flush_logs_every_n_steps", 100)
            return CSVLogger(
                self._folder, name=str(place), version="", flush_logs_every_n_steps=every
            )
        return DummyLogger()


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
