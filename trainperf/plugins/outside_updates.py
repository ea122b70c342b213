"""Updates of a process's optimizers: with them recordings from outside begin and end.

Nothing is recorded while a Trainer with our callback trains, or a `LoopMonitor` of the script's own
measures: they know more.
"""

import sys
from threading import get_ident
from traceback import walk_stack

from torch.optim import Optimizer

from trainperf.plugins.outside_loop import OutsideLoop
from trainperf.plugins.outside_modules import ThreadHook
from trainperf.recording.guard import Guard
from trainperf.recording.monitor import Monitor
from trainperf.recording.process_objects import at_fork, calls_under_way, nothing


_PART = "recording from outside"

_STEP = Optimizer.profile_hook_step(nothing).__code__
"""What torch puts around the `step` of every optimizer, and calls hooks in."""

_TRAINERS = ("lightning.pytorch.", "pytorch_lightning.", "transformers.trainer")
"""Modules whose loops have callbacks: where ours is not at work it was refused, or has failed."""


class ProcessUpdates:
    """Begins with an update of the process to record its loop, which hears of all later ones."""

    def __init__(self) -> None:
        self.begins, self.ends = ThreadHook(), ThreadHook()
        """To be called before and after every update of this thread."""
        self._guard = Guard()
        at_fork(after_in_child=self._wait)  # a child may train by itself
        self._wait()

    def _wait(self) -> None:
        """For the first update of a loop."""
        self.loop: OutsideLoop | None = None
        """What is recorded now."""
        self.begins.thread = self.ends.thread = get_ident()
        self.begins.act = nothing
        self.ends.act = self._guard.hook(_PART, self._begin)

    def _begin(self, optimizer: Optimizer, *_: object) -> None:
        """Nothing is recorded from outside, unless from here on.

        The update of an optimizer that another one steps itself is part of the other's.
        """
        if not Monitor.under_way and calls_under_way(_STEP) == 1 and not _inside_trainer():
            self.begins.act = self.ends.act = nothing
            self.loop = OutsideLoop(optimizer, (self.begins, self.ends), self._begin)
            self.loop.fit.closing.callback(self._wait)


def _inside_trainer() -> bool:
    """Whether the loop that goes on is no plain one."""
    stack = walk_stack(sys._getframe())  # noqa: SLF001 documented, and what `inspect` uses
    return any(str(frame.f_globals.get("__name__", "")).startswith(_TRAINERS) for frame, _ in stack)
