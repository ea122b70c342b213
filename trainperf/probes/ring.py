"""How does a value get off the device without waiting for it?

Values are written into a preallocated device buffer.  When a group of steps ends, the filled part
is copied to pinned host memory without blocking; by the time the group's fence has been reached,
the copy is there.  On a CPU the buffer *is* host memory, and nothing is copied.
"""

from collections import deque

import torch


SLOTS = 256
"""Rows kept per group; further ones are given up, and counted."""


class _Buffer:
    """A device buffer, its rows (viewed once: `whole[i]` makes a tensor), its host mirror."""

    __slots__ = ("host", "rows", "whole")

    def __init__(self, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self.whole = torch.zeros(SLOTS, width, dtype=dtype, device=device)
        self.rows = list(self.whole.unbind())
        # Pinned memory is allocated here, once: doing it at a seal may wait for the device.
        self.host = (
            self.whole
            if device.type == "cpu"
            else torch.zeros(SLOTS, width, dtype=dtype, pin_memory=device.type == "cuda")
        )


class Ring:
    """Rows of numbers for each step, written on the device and read later on the host.

    The buffers are made at first use, on the device of the first value.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._device = torch.device("cpu")
        self._width = 0
        self._spare: list[_Buffer] = []
        self._buffer = _Buffer(0, dtype, self._device)
        self._steps: list[int] = []
        self._sealed: deque[tuple[list[int], _Buffer]] = deque()
        self._known: dict[int, list[list[float]]] = {}
        self.dropped = 0
        """Values given up because a group had too many."""

    def row(self, step: int, device: torch.device, width: int = 1) -> torch.Tensor | None:
        """A fresh zeroed row for a value of *step*; `None` when the group has used them all.

        Runs every micro-batch.  Makes a tensor only the first time, or when rows get wider.
        """
        if width > self._width or device != self._device:
            self.seal()
            self._device, self._width = device, max(width, self._width)
            self._spare.clear()
            self._buffer = self._make()
        used = len(self._steps)
        if used >= SLOTS:
            self.dropped += 1
            return None
        self._steps.append(step)
        return self._buffer.rows[used]

    def seal(self) -> None:
        """Start copying what was written since the last seal."""
        if not self._steps:
            return
        used, buffer = len(self._steps), self._buffer
        if buffer.host is not buffer.whole:
            buffer.host[:used].copy_(buffer.whole[:used], non_blocking=True)
        self._sealed.append((self._steps, buffer))
        self._steps = []
        self._buffer = self._spare.pop() if self._spare else self._make()

    def groups(self) -> int:
        """How many seals have not been read yet: what `resolve` must be told to read."""
        return len(self._sealed)

    def resolve(self, groups: int) -> None:
        """Read the oldest *groups* seals; their fence must have been reached."""
        for _ in range(groups):
            steps, buffer = self._sealed.popleft()
            for step, row in zip(steps, buffer.host[: len(steps)].tolist(), strict=True):
                self._known.setdefault(step, []).append(row)
            if buffer.whole.shape[1] == self._width and buffer.whole.device == self._device:
                buffer.whole.zero_()
                self._spare.append(buffer)

    def take(self, step: int) -> list[list[float]]:
        """The rows of a step in the order they were written, once."""
        return self._known.pop(step, [])

    def _make(self) -> _Buffer:
        return _Buffer(self._width, self._dtype, self._device)
