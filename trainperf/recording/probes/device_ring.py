"""Ring of preallocated memory in which values leave the device without a wait.

Values are written into a preallocated buffer on the device.  When a group of steps ends, the part
that is filled is copied to pinned host memory without blocking, on the stream that has written it,
with an event behind the copy; a value is read when *its* event has been reached, whatever else has:
nothing here hands one out before.
On a CPU the buffer *is* host memory, and nothing is copied.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, TypeAlias

import torch

from trainperf.accelerators import Ability, Accelerator, accelerator_of
from trainperf.core.machine.clocks import TimingEvent


SLOTS = 256
"""Rows of a buffer; a group that needs more begins another one."""

MOST_BUFFERS = 64
"""Buffers not read yet; beyond that values are given up, and counted."""

_SPARE = 3
"""Buffers made at once: one being filled and those on their way.  Pinned memory is allocated then,
because doing it in a running loop may wait for the device."""


_Place: TypeAlias = tuple[torch.device, Any]
"""A device and its stream, `None` on a CPU."""


class _Buffer:
    """A device buffer of one stream, its rows (viewed once: `whole[i]` makes a tensor), its mirror.

    Args:
        accelerator: The device.
        stream: That writes it; `None` on a CPU.
        width: Of a row.
        dtype: Of its values.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        stream: Any,  # noqa: ANN401 each backend's own
        width: int,
        dtype: torch.dtype,
    ) -> None:
        self.width = width
        self.stream = stream
        self.written: list[tuple[int, int, int]] = []
        """Of each row its place among those of all buffers, its step and its width."""
        self._accelerator = accelerator
        # One made in inference mode could not be zeroed outside of it.
        with torch.inference_mode(mode=False):
            self.whole = torch.zeros(SLOTS, width, dtype=dtype, device=accelerator.device)
            self.rows = list(self.whole.unbind())
            self._host = (
                torch.zeros(SLOTS, width, dtype=dtype, device="cpu", pin_memory=True)
                if accelerator.asynchronous
                else self.whole
            )
        self.done: TimingEvent | None = accelerator.event() if accelerator.asynchronous else None
        """Behind the copy, once there is one."""

    def copy(self) -> None:
        """Put the copy into the queue of the stream that has written the rows."""
        if self.done is None:
            return
        used = len(self.written)
        with self._accelerator.on(self.stream):
            self._host[:used].copy_(self.whole[:used], non_blocking=True)
        self.done.record(self.stream)

    def read(self) -> list[tuple[int, int, list[float]]]:
        """Place, step and values of each row, once; the buffer can be filled again.

        Raises:
            RuntimeError: The device has not written them yet.
        """
        if self.done is not None and not self.done.query():
            raise RuntimeError("a value was read before the device had written it")
        written, self.written = self.written, []
        rows = self._host[: len(written)].tolist()
        with nullcontext() if self.done is None else self._accelerator.on(self.stream):
            self.whole.zero_()
        return [
            (place, step, row[:width])
            for (place, step, width), row in zip(written, rows, strict=True)
        ]


class Ring:
    """Rows of numbers for each step, written on the device and read later on the host.

    Buffers are made at first use, on the device and for the stream of the value.  A step of which a
    value was given up has none: part of a sum is no sum.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._accelerator = cache(_readable)
        self._open: dict[_Place, _Buffer] = {}
        """Those that are filled now, by device and stream."""
        self._spare: dict[_Place, list[_Buffer]] = {}
        self._groups: deque[list[tuple[_Place, _Buffer]]] = deque([[]])
        """Those that are being copied; the last group is open."""
        self.rows_of: dict[int, list[list[float]]] = {}
        """Of each step, in the order they were written, until somebody takes them."""
        self._incomplete: set[int] = set()
        self._rows = 0
        self.dropped = 0
        """Values given up because every buffer was in flight."""

    def row(self, step: int, device: torch.device, width: int = 1) -> torch.Tensor | None:
        """A fresh zeroed row for *width* values of *step*; `None` when all buffers are in flight.

        It may be longer than that: what lies beyond is not read.  `None`, too, inside the capture
        of a graph, which would write the same row whenever it is replayed, and on a device that
        does not tell when a copy is done.

        Runs every micro-batch.  Makes a tensor only until there are enough, or when rows get wider.
        """
        accelerator = self._accelerator(device)
        if accelerator is None:
            return None
        if accelerator.asynchronous and accelerator.is_capturing():
            self._incomplete.add(step)
            return None
        key = device, accelerator.current_stream() if accelerator.asynchronous else None
        buffer = self._open.get(key)
        if buffer is None or width > buffer.width or len(buffer.written) == SLOTS:
            buffer = self._another(key, accelerator, width)
            if buffer is None:
                self.dropped += 1
                self._incomplete.add(step)
                return None
        used = len(buffer.written)
        self._rows += 1
        buffer.written.append((self._rows, step, width))
        return buffer.rows[used]

    def seal(self) -> Sequence[TimingEvent]:
        """End a group: start copying what was written since the last one.

        Returns the events behind the copies: `resolve` needs all of them to be reached.
        """
        for key in list(self._open):
            self._copy(key)
        copied = self._groups[-1]
        self._groups.append([])
        return [buffer.done for _, buffer in copied if buffer.done is not None]

    def resolve(self) -> None:
        """Read the oldest group.

        Raises:
            RuntimeError: One of its events has not been reached.
        """
        group = self._groups.popleft()
        # Those of two streams as they were written: the last of a step may be in the first buffer.
        for _, step, row in sorted(row for _, buffer in group for row in buffer.read()):
            self.rows_of.setdefault(step, []).append(row)
        for key, buffer in group:
            self._spare.setdefault(key, []).append(buffer)

    def take(self, step: int) -> list[list[float]]:
        """The rows of a step in the order they were written, once."""
        rows = self.rows_of.pop(step, [])
        if step in self._incomplete:
            self._incomplete.discard(step)
            return []
        return rows

    def _another(self, key: _Place, accelerator: Accelerator, width: int) -> _Buffer | None:
        """One in place of the open one, if there was one; `None` when all are in flight."""
        if key in self._open:
            self._copy(key)
        if sum(map(len, self._groups)) + len(self._open) >= MOST_BUFFERS:  # those in flight
            return None
        spare = [buffer for buffer in self._spare.get(key, ()) if buffer.width >= width]
        if not spare:
            spare = [
                _Buffer(accelerator, key[1], width, self._dtype)
                for _ in range(_SPARE if accelerator.asynchronous else 1)
            ]
        buffer = self._open[key] = spare.pop()
        self._spare[key] = spare
        return buffer

    def _copy(self, key: _Place) -> None:
        """The open buffer, which has a row at least, is full, or its group ends."""
        buffer = self._open.pop(key)
        buffer.copy()
        self._groups[-1].append((key, buffer))


def _readable(device: torch.device) -> Accelerator | None:
    """The device; `None` for one that does not tell when a copy is done."""
    accelerator = accelerator_of(device)
    mute = accelerator.asynchronous and Ability.EVENTS in accelerator.lacks()
    return None if mute else accelerator
