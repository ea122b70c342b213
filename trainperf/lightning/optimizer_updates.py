"""Count of optimizer updates, as `trainer.global_step` counts them, and beyond.

In manual optimization an optimizer taken with `optimizers(use_pl_optimizer=False)` steps without
Lightning's knowledge: there the optimizers' own hooks count.
"""

from collections.abc import Sequence
from typing import Protocol

import lightning.pytorch as pl
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from trainperf.lightning.boundaries import Boundaries
from trainperf.recording.guard import Guard


class Counter(Protocol):
    """What is used of Lightning's progress objects."""

    @property
    def completed(self) -> int:
        """Updates so far."""
        ...


class Updates:
    """Counts updates.  Their sum matters only in that it rises when an optimizer steps."""

    def __init__(self, trainer: "pl.Trainer") -> None:
        self.counter: Counter = _GlobalStep(trainer)
        """Updates that Lightning knows of."""
        self.hooked = 0
        """Updates that the optimizers' hooks have seen, in manual optimization."""
        self._handles: list[RemovableHandle] = []

    def start(self, trainer: "pl.Trainer", module: "pl.LightningModule") -> None:
        """The loops exist: find the counter that `trainer.global_step` reads six levels down."""
        loop = trainer.fit_loop.epoch_loop
        try:
            counter: Counter = (
                loop.automatic_optimization.optim_progress.optimizer.step.total
                if module.automatic_optimization
                else loop.manual_optimization.optim_step_progress.total
            )
            exact = counter.completed == trainer.global_step
        except AttributeError:  # another version of Lightning
            return
        if exact:
            self.counter = counter

    def hear(self, optimizers: Sequence[Optimizer], boundaries: Boundaries, guard: Guard) -> None:
        """Hook the optimizers of a manual optimization, to count and to bracket their steps."""

        def begins(*_: object) -> None:
            boundaries.optimizer_begins()

        def ends(*_: object) -> None:
            boundaries.optimizer_ends()
            self.hooked += 1

        for optimizer in optimizers:
            self._handles += [
                optimizer.register_step_pre_hook(guard.wrap(Boundaries.part, begins)),
                optimizer.register_step_post_hook(guard.wrap(Boundaries.part, ends)),
            ]

    def detach(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class _GlobalStep:
    """`trainer.global_step` itself: right, but six properties deep."""

    def __init__(self, trainer: "pl.Trainer") -> None:
        self._trainer = trainer

    @property
    def completed(self) -> int:
        return self._trainer.global_step
