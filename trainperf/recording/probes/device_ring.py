"""Ring of preallocated memory in which values leave the device without a wait.

Values are written into a preallocated device buffer.  When a group of steps ends, the filled part
is copied to pinned host memory without blocking; by the time the group's fence has been reached,
the copy is there.  On a CPU the buffer *is* host memory, and nothing is copied.
"""

from collections import deque

import torch


SLOTS = 256
"""Rows of a buffer; a group that needs more begins another one."""

_COPIED_FROM = ("cpu", "cuda")
"""Devices whose copies are known to be done: elsewhere a value would be read too early."""

MOST_BUFFERS = 64
"""Buffers not read yet; beyond that values are given up, and counted."""


class _Buffer:
    """A device buffer, its rows (viewed once: `whole[i]` makes a tensor), its host mirror."""

    __slots__ = ("host", "rows", "whole")

    def __init__(self, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self.whole = torch.zeros(SLOTS, width, dtype=dtype, device=device)
        self.rows = list(self.whole.unbind())
        self.host = (
            self.whole
            if device.type == "cpu"
            else torch.zeros(SLOTS, width, dtype=dtype, pin_memory=device.type == "cuda")
        )


_Copy = tuple[list[tuple[int, int]], _Buffer]
"""Step and width of each row that was written, and where."""


class Ring:
    """Rows of numbers for each step, written on the device and read later on the host.

    The buffers are made at first use, on the device of the first value.  A step of which a value
    was given up has none: part of a sum is no sum.
    """

    def __init__(self, dtype: torch.dtype, most_buffers: int = MOST_BUFFERS) -> None:
        self._dtype = dtype
        self._most_buffers = most_buffers
        self._device = torch.device("cpu")
        self._width = 0
        self._spare: list[_Buffer] = []
        self._buffer = _Buffer(0, dtype, self._device)
        self._steps: list[tuple[int, int]] = []
        self._copied: list[_Copy] = []
        """Of the open group."""
        self._groups: deque[list[_Copy]] = deque()
        self.rows_of: dict[int, list[list[float]]] = {}
        """Of each step, in the order they were written, until somebody takes them."""
        self._incomplete: set[int] = set()
        self.dropped = 0
        """Values given up because every buffer was in flight."""

    def row(self, step: int, device: torch.device, width: int = 1) -> torch.Tensor | None:
        """A fresh zeroed row for *width* values of *step*; `None` when all buffers are in flight.

        It may be longer than that: what lies beyond is not read.

        Runs every micro-batch.  Makes a tensor only until there are enough, or when rows get wider.
        """
        if width > self._width or device != self._device:
            if device.type not in _COPIED_FROM:
                return None
            self._copy()
            self._device, self._width = device, max(width, self._width)
            # Enough for a group being filled and those on their way: pinned memory is allocated
            # now, because doing it in a running loop may wait for the device.
            self._spare = [self._make() for _ in range(1 if device.type == "cpu" else 3)]
            self._buffer = self._spare.pop()
        elif len(self._steps) == SLOTS:
            if sum(map(len, self._groups)) + len(self._copied) + 1 >= self._most_buffers:
                self.dropped += 1
                self._incomplete.add(step)
                return None
            self._copy()
        used = len(self._steps)
        self._steps.append((step, width))
        return self._buffer.rows[used]

    def seal(self) -> None:
        """End a group: start copying what was written since the last one."""
        self._copy()
        self._groups.append(self._copied)
        self._copied = []

    def resolve(self) -> None:
        """Read the oldest group; its fence must have been reached."""
        for steps, buffer in self._groups.popleft():
            rows = buffer.host[: len(steps)].tolist()
            for (step, width), row in zip(steps, rows, strict=True):
                self.rows_of.setdefault(step, []).append(row[:width])
            if buffer.whole.shape[1] == self._width and buffer.whole.device == self._device:
                buffer.whole.zero_()
                self._spare.append(buffer)

    def take(self, step: int) -> list[list[float]]:
        """The rows of a step in the order they were written, once."""
        rows = self.rows_of.pop(step, [])
        if step in self._incomplete:
            self._incomplete.discard(step)
            return []
        return rows

    def _copy(self) -> None:
        if not self._steps:
            return
        used, buffer = len(self._steps), self._buffer
        if buffer.host is not buffer.whole:
            buffer.host[:used].copy_(buffer.whole[:used], non_blocking=True)
        self._copied.append((self._steps, buffer))
        self._steps = []
        self._buffer = self._spare.pop() if self._spare else self._make()

    def _make(self) -> _Buffer:
        return _Buffer(self._width, self._dtype, self._device)
