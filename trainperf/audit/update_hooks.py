"""Hooks around every update of the process, which an audit may take away in the middle of one."""

from collections.abc import Callable

from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle


UpdateHook = Callable[..., None]


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
        self._inside, self._attached = 0, True
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
