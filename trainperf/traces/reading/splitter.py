"""Splitter of a document larger than memory into batches of whole events.

Whitespace, the order of keys and the place of `traceEvents` are whatever the last tool made them.
A cut between events is a guess that the decoder proves: a list of events that decodes was cut at
events, because a cut inside one would leave a bracket open.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from trainperf.core.errors import TraceError
from trainperf.core.paths import AnyPath
from trainperf.traces.reading.decode import FAULTS, Decoded, EventDecoder, value_end
from trainperf.traces.reading.salvage import BETWEEN, past, salvage
from trainperf.traces.reading.source import Buffer, ReadLimits, Source


_BOUNDARY = re.compile(rb'\}\s*,\s*\{\s*"')
"""Between two events, or between two objects of a list inside one."""

KEYS = frozenset({"deviceProperties", "distributedInfo", "baseTimeNanoseconds"})
"""What is looked at besides the events; anything else a trace says is passed over."""

_EVENTS = "traceEvents"
_RESCUE = re.compile(f'"(?:{"|".join({_EVENTS, *KEYS})})"\\s*:'.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value that stands next to the events, as JSON."""

    key: str
    body: bytes


class TraceDocument:
    """One trace document; its parts come in the order of the file."""

    def __init__(self, path: AnyPath, limits: ReadLimits, decoder: EventDecoder) -> None:
        self.truncated = False
        """Whether the file ended, or stopped making sense, before a list of events did."""
        self.trailing = False
        """Whether something follows the document."""
        self.dropped = self.repaired = 0
        """Damaged events so far that were left out, and those that were mended."""
        self._decoder = decoder
        self._source = Source(path, limits)
        self._window = _ByteWindow(self._source.blocks(), limits.value_bytes)

    def parts(self) -> Iterator[Value | list[Decoded]]:
        """All parts; raises `TraceError` when the first byte cannot start a trace."""
        window = self._window
        opener = window.peek()
        if opener not in (b"{", b"["):
            what = "it is empty" if not opener else "it does not start with { or ["
            raise TraceError(f"this is no JSON trace: {what}")
        yield from self._array() if opener == b"[" else self._members()
        self.trailing = self._source.trailing or (not self.truncated and window.peek() != b"")

    def _members(self) -> Iterator[Value | list[Decoded]]:
        window = self._window
        window.at += 1
        while (opener := window.peek()) not in (b"}", b""):
            key = self._value() if opener == b'"' else None
            if key is not None and window.peek() == b":":
                window.at += 1
                name = key.strip(b'"').decode("utf-8", errors="replace")
                if name == _EVENTS and window.peek() == b"[":
                    yield from self._array()
                    continue
                body = self._value()
                if body is not None:
                    yield Value(key=name, body=body)
                    continue
            # A damaged value: what counts behind it is still found, if the window holds it.
            next_key = _RESCUE.search(window.data, window.at)
            if not next_key:
                # Events in it are lost; a name that is no JSON, behind all of them, loses nothing.
                self.truncated |= b'"ph"' in window.data[window.at :]
                window.at = len(window.data)
                return
            window.at = next_key.start()
        self.truncated |= opener == b""
        window.at += 1

    def _value(self) -> bytes | None:
        """Skip one value and return it; `None` if it is damaged."""
        window = self._window
        window.peek()
        length = value_end(window.rest)
        while length == len(window.rest) and window.grow():
            length = value_end(window.rest)
        if length is None:
            return None
        body = bytes(window.rest[:length]).rstrip()
        window.at += length
        return body

    def _array(self) -> Iterator[list[Decoded]]:
        window = self._window
        window.at += 1
        self.truncated = True
        while (closer := window.peek()) not in (b"]", b""):
            events = self._chunk()
            if events is None:
                return
            yield events
        self.truncated = closer != b"]"
        window.at += 1

    def _chunk(self) -> list[Decoded] | None:
        """The next events; `None` if one is larger than any."""
        window = self._window
        # What follows the chunk holds the end of its last event.
        is_cut = window.fill(Buffer.CHUNK + Buffer.PIECE)
        cut = _BOUNDARY.search(window.data, window.at + Buffer.CHUNK) if is_cut else None
        end = cut.start() + 1 if cut else len(window.data)
        # Copied once: a megabyte at a time, copies are what the splitter takes.
        body = b"".join((b"[", memoryview(window.data)[window.at : end], b"]"))
        decoded = self._decoded(body)
        if decoded is not None:
            events, length = decoded
            window.at += length - 2
            return events
        final = not window.fill(len(window.rest) + 1)
        saved = salvage(self._decoder, bytes(window.rest), final=final)
        window.at += saved.used
        self.dropped += saved.dropped
        self.repaired += saved.repaired
        # Twice as much each time, so that an event without end is not looked through for ever.
        return saved.events if saved.used or window.grow() else None

    def _decoded(self, body: bytes) -> tuple[list[Decoded], int] | None:
        """Its events, and where their list ended; `None` if it is damaged."""
        ends: tuple[Callable[[bytes], int | None], ...] = (len, value_end)
        for end in ends:
            whole = body[: end(body)].rstrip()
            with suppress(*FAULTS):
                return self._decoder.many(whole), len(whole)
        return None


class _ByteWindow:
    """A stretch of the document that moves on: `fill` appends, a larger `at` forgets."""

    def __init__(self, blocks: Iterator[bytes], most_bytes: int) -> None:
        self.data = b""
        self.at = 0
        self._blocks = blocks
        self._most_bytes = most_bytes

    @property
    def rest(self) -> memoryview:
        """What is held."""
        return memoryview(self.data)[self.at :]

    def fill(self, wanted: int) -> bool:
        """Hold at least *wanted* bytes if there are that many; `False` at the end."""
        while len(self.data) - self.at < wanted:
            block = next(self._blocks, b"")
            if not block:
                return False
            self.data = b"".join((self.rest, block))
            self.at = 0
        return True

    def grow(self) -> bool:
        """Hold twice as much; `False` at the end, or beyond what one value may take."""
        held = len(self.rest)
        self.fill(2 * held)
        return held < len(self.rest) <= self._most_bytes

    def peek(self) -> bytes:
        """The next byte that is neither blank nor comma, skipping those; nothing at the end."""
        while True:
            self.at = past(BETWEEN, self.data, self.at)
            if self.at < len(self.data) or not self.fill(1):
                return self.data[self.at : self.at + 1]
