"""Loop of a Trainer that is held still in the middle of an epoch, while changes are tried in it.

Steps go on, and nothing comes between them: no end of the epoch or of the fit, no validation, no
scheduler, no checkpoint.  Afterwards all counters are as they were, so the fit ends as it would
have.
"""

import copy
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Protocol, cast

import lightning.pytorch as pl
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from lightning.pytorch.callbacks import Checkpoint, Timer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from typing_extensions import override


Assign = Callable[[object, str, object], object]
"""As `setattr`; one that remembers what was there before, where it is to be put back."""


MANY = 10**9
"""Batches of an epoch that never ends; progress bars divide by it, and cannot by infinity."""


class Fetcher(Protocol):
    """What is used of Lightning's fetcher of batches."""

    iterator: Iterator[Any]
    fetched: int
    done: bool
    length: int | None


class HeldLoop:
    """The loop between two steps, held from now on until `let_go`.

    Made while the loop asks for a batch, and let go likewise.
    """

    def __init__(self, trainer: "pl.Trainer") -> None:
        self._trainer = trainer
        self._before: list[tuple[object, str, object]] = []
        fit, epoch = trainer.fit_loop, trainer.fit_loop.epoch_loop
        self._progress = (
            epoch.batch_progress,
            epoch.scheduler_progress,
            epoch.automatic_optimization.optim_progress,
            epoch.manual_optimization.optim_step_progress,
        )
        self._counts = [copy.deepcopy(progress.state_dict()) for progress in self._progress]
        self._steps = epoch.on_save_checkpoint()
        without_end(trainer, self._set)
        without_checkpoints(trainer, self._set)
        self._set(fit, "max_batches", MANY)
        self._set(trainer, "limit_val_batches", 0)
        # What is logged meanwhile is no part of the epoch's means.
        self._set(epoch, "_results", type(epoch._results)(training=True))  # noqa: SLF001 no other way
        self._fetcher = _fetcher(trainer)
        self._ahead = self._fetcher.length is None and hasattr(self._fetcher, "batches")
        if self._ahead:  # a switch between two steps must hold from the next batch on
            setattr(self._fetcher, "batches", [])  # noqa: B010 not in the protocol
        self._set(self._fetcher, "fetched", self._fetcher.fetched)
        self._set(self._fetcher, "length", None)
        self._set(self._fetcher, "done", False)

    @property
    def keeps_position(self) -> bool:
        """Whether no batch was fetched ahead, which trials have used."""
        return not self._ahead

    @property
    def counts_batches(self) -> bool:
        """Whether the epoch ends after a number of batches, once the loop was let go."""
        return self._fetcher.length is not None

    def let_go(self) -> None:
        """Put back counters and limits."""
        for progress, counts in zip(self._progress, self._counts, strict=True):
            progress.load_state_dict(copy.deepcopy(counts))
        self._trainer.fit_loop.epoch_loop.on_load_checkpoint(self._steps)
        while self._before:
            setattr(*self._before.pop())

    def fetch_ahead(self) -> None:
        """Have a batch in hand again, where Lightning learns only so which is the last."""
        iterators = iterators_of(self._trainer)
        if not self._ahead or not iterators:
            return
        first = next(iterators[0], None)
        if first is None:
            return
        ahead = next(self._fetcher.iterator, None)
        iterators[0] = chain([first], iterators[0])
        self._fetcher.done = ahead is None
        setattr(self._fetcher, "batches", [] if ahead is None else [ahead])  # noqa: B010 see above

    def _set(self, owner: object, name: str, value: object) -> None:
        self._before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)


def iterators_of(trainer: "pl.Trainer") -> list[Iterator[Any]]:
    """The loop's iterators of this epoch, one for each loader, to be replaced in place."""
    # A `CombinedLoader` shows its loaders, not their iterators.
    mode = getattr(trainer.fit_loop._combined_loader, "_iterator", None)  # noqa: SLF001 no other way
    return cast("list[Iterator[Any]]", getattr(mode, "iterators", []))


def takes_iterator(trainer: "pl.Trainer") -> bool:
    """Whether `training_step` fetches by itself."""
    return hasattr(_fetcher(trainer), "iterator_wrapper")


def without_end(trainer: "pl.Trainer", assign: Assign) -> None:
    """No limit on steps and epochs, and no scheduler, which may know one."""
    assign(trainer.fit_loop, "max_epochs", -1)
    assign(trainer.fit_loop.epoch_loop, "max_steps", -1)
    assign(trainer.strategy, "lr_scheduler_configs", [])


def without_checkpoints(trainer: "pl.Trainer", assign: Assign) -> None:
    """Nothing is saved, or removed because another was; no clock ends the fit."""
    kept = [c for c in trainer.callbacks if not isinstance(c, Checkpoint | Timer)]
    assign(trainer, "callbacks", kept)
    strategy = trainer.strategy
    if isinstance(strategy, SingleDeviceStrategy | DDPStrategy):  # others save in their own way
        assign(strategy, "checkpoint_io", ReadsOnly(strategy.checkpoint_io))


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


def _fetcher(trainer: "pl.Trainer") -> Fetcher:
    return cast("Fetcher", trainer.fit_loop._data_fetcher)  # noqa: SLF001 no other way
