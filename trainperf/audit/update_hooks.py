"""Hooks around every update of the process, which an audit may take away in the middle of one."""

import sys
from collections.abc import Callable
from traceback import walk_stack

from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle


_TORCHS = Optimizer.profile_hook_step.__code__.co_filename
"""Where torch puts its hooks around the `step` of an optimizer."""

UpdateHook = Callable[..., None]


def _updates_under_way() -> int:
    """How many calls of an optimizer's `step` go on in this thread, inside each other."""
    frames = (frame.f_code for frame, _ in walk_stack(sys._getframe()))  # noqa: SLF001 documented
    return sum(code.co_name == "wrapper" and code.co_filename == _TORCHS for code in frames)


class UpdateHooks:
    """A hook before and one after each update, while they are attached.

    PyTorch goes through its hooks while it calls them: one that is taken away meanwhile raises in
    the user's training.  Amid an update they fall silent only, until `release`.

    Args:
        before: Called with the optimizer.
        after: The same.
    """

    def __init__(self, before: UpdateHook, after: UpdateHook) -> None:
        self._before, self._after = before, after
        self._handles: list[RemovableHandle] = []
        self._attached = False
        self._inside = 0

    def attach(self) -> None:
        """Hear of updates from now on."""
        self.release()
        # A closure may have begun the step that is attached to: its update goes on already.
        self._inside, self._attached = _updates_under_way(), True
        self._handles = [
            register_optimizer_step_pre_hook(self._begins),
            register_optimizer_step_post_hook(self._ends),
        ]

    def detach(self) -> None:
        """Hear of none; leave no hook behind, unless an update goes on."""
        self._attached = False
        if self._inside <= 0:
            self.release()

    def release(self) -> None:
        """Leave no hook behind: while no update goes on."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _begins(self, optimizer: Optimizer, *_: object) -> None:
        self._inside += 1
        if self._attached:
            self._before(optimizer)

    def _ends(self, optimizer: Optimizer, *_: object) -> None:
        self._inside -= 1
        if self._attached:
            self._after(optimizer)
