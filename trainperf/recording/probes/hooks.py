"""Hooks of probes on the user's objects: heard once where that is enough, and all taken back."""

import torch
from torch.utils.hooks import RemovableHandle

from trainperf.recording.probes.base import Probe
from trainperf.recording.process_objects import UntracedHook, nothing


class HookingProbe(Probe):
    """A probe that leaves no hook behind."""

    def __init__(self) -> None:
        self._handles: list[RemovableHandle] = []

    def detach(self) -> None:
        """Take back every hook."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class FirstForwardHook(UntracedHook):
    """One that hears of the first forward that runs as it is written, and of no other."""

    __slots__ = ()

    def __call__(self, *given: object) -> None:
        """Look, the first time."""
        if not torch.compiler.is_compiling():
            act, self.act = self.act, nothing
            act(*given)
