"""Updates of a process's optimizers: with them recordings from outside begin and end.

Nothing is recorded while a Trainer with our callback trains, or a `LoopMonitor` of the script's own
measures: they know more.
"""

import os
import sys
from collections.abc import Iterator
from threading import get_ident

from torch.optim import Optimizer

from trainperf.core.launch_environment import LaunchOptions, LaunchSignal
from trainperf.plugins.outside_loop import OutsideLoop
from trainperf.recording.guard import Guard
from trainperf.recording.hook_cost import HookCost
from trainperf.recording.monitor import Monitor


_PART = "recording from outside"

_TRAINERS = ("lightning.pytorch.", "pytorch_lightning.", "transformers.trainer")
"""Modules whose loops have callbacks: where ours is not at work it was refused, or has failed."""

_NEW_LOOP = 2
"""Updates in a row by an optimizer of its own, from which on it is another loop's."""


class ProcessUpdates:
    """Hears of every update of the process.

    Args:
        options: The command's.
    """

    def __init__(self, options: LaunchOptions) -> None:
        self._options = options
        self._guard = Guard()
        self._loop: OutsideLoop | None = None
        self._depth = 0
        self._passes = 0
        self._thread = get_ident()
        self._stranger: Optimizer | None = None
        self._strange = 0
        self._noted = False
        self._timed = False
        """Whether it is timed what hearing of updates takes."""
        self._starts = 0
        """How many fits had begun when this one did: another one knows more."""
        self._updated = self._guard.wrap(_PART, self._update_over)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def begins(self, optimizer: Optimizer) -> None:
        """Before an update.  Runs every step, also where something else measures."""
        if get_ident() != self._thread:
            return
        loop = self._loop
        passes = 0 if loop is None else loop.passes.backwards
        if self._depth and passes == self._passes:  # a subclass calls the `step` of its base
            self._depth += 1
            return
        self._depth, self._passes = 1, passes  # one that raised has not ended
        if loop is not None and optimizer in loop.optimizers:
            loop.update_begins(optimizer)

    def ends(self, optimizer: Optimizer) -> None:
        """After an update; of calls inside each other, after the outermost."""
        if not self._depth or get_ident() != self._thread:
            return
        self._depth -= 1
        if self._depth:
            return
        loop = self._loop
        if self._timed and (loop is None or loop.cost is None):
            self._time(None)
        usual = self._stranger is None and self._starts == Monitor.starts
        if usual and loop is not None and optimizer in loop.optimizers:
            loop.update_ends(optimizer)
        else:
            self._updated(optimizer)

    def end(self) -> None:
        """The loop is over; another may come."""
        loop, self._loop = self._loop, None
        self._forget_stranger()
        if loop is not None:
            loop.fit.end()

    def _alone(self) -> bool:
        own = self._loop is not None and not self._loop.fit.monitor.finished
        return len(Monitor.under_way) <= own

    def _update_over(self, optimizer: Optimizer) -> None:
        loop = self._loop
        if not self._alone():
            self._recorded()
            self.end()
        elif loop is None:
            self._open(optimizer)
        elif optimizer in loop.optimizers:
            if self._stranger is not None:  # it takes turns with the others
                loop.join(self._stranger)
                self._forget_stranger()
            loop.update_ends(optimizer)
            self._starts = Monitor.starts
        elif loop.forms:
            loop.join(optimizer)
            loop.update_ends(optimizer)
        else:
            self._met(optimizer)

    def _met(self, optimizer: Optimizer) -> None:
        """One that is new to a loop all of whose optimizers are known."""
        self._strange = self._strange + 1 if optimizer is self._stranger else 1
        self._stranger = optimizer
        if self._strange == _NEW_LOOP:
            self.end()
            self._open(optimizer)

    def _forget_stranger(self) -> None:
        self._stranger, self._strange = None, 0

    def _open(self, optimizer: Optimizer) -> None:
        if not any(_trainers_above()):
            self._loop = OutsideLoop(optimizer)
            self._time(self._loop.cost)
            self._starts = Monitor.starts
            if self._loop.records:
                self._recorded()

    def _time(self, cost: HookCost | None) -> None:
        """Have what hears of updates timed, or no more."""
        own = vars(self)
        own.pop("begins", None)
        own.pop("ends", None)
        if cost is not None:
            own |= {"begins": cost.timed(self.begins), "ends": cost.timed(self.ends)}
        self._timed = cost is not None

    def _recorded(self) -> None:
        """Something is recorded, by whomever."""
        if not self._noted:
            self._noted = True
            self._options.send(LaunchSignal.RECORDED)

    def _forked(self) -> None:
        """A child has inherited what its parent measures, and may train by itself."""
        self._loop = None
        self._depth = 0
        self._thread = get_ident()


def _trainers_above() -> Iterator[str]:
    """Modules on the stack whose loops are no plain ones."""
    frame = sys._getframe()  # noqa: SLF001 documented, and what `inspect` uses
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith(_TRAINERS):
            yield name
        frame = frame.f_back  # type: ignore[assignment]
