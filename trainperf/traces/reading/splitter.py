"""Where does one event end and the next begin?  Cuts a document that is larger than memory.

Whitespace, the order of keys and the place of `traceEvents` are whatever the last tool made them.
A cut between events is a guess that the decoder proves: a list of events that decodes was cut at
events, because a cut inside one would leave a bracket open.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainperf.errors import TraceError
from trainperf.traces.reading.decode import FAULTS, Event, EventDecoder, trailing
from trainperf.traces.reading.salvage import BOUNDARY, salvage


CHUNK_BYTES = 2**22
MOST_VALUE_BYTES = 2**26
"""A value or an event that is larger is taken for damage."""

_EVENTS = "traceEvents"
_SPACE = re.compile(rb"[ \t\r\n]*")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{}]', re.DOTALL)
_SCALAR = re.compile(rb"[^,\]}\s]*")
_DEPTH = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_RESCUE = re.compile(rb'"traceEvents"\s*:\s*\[')


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value that stands beside the events, as JSON."""

    key: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Events that stood together, and what was lost among them."""

    events: list[Event]
    dropped: int = 0
    repaired: int = 0


class Window:
    """A stretch of the document that moves on; `more` appends, `skip` forgets."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.data = b""
        self.at = 0
        self._blocks = blocks

    def more(self) -> bool:
        """Append the next block; `False` when there is none."""
        block = next(self._blocks, b"")
        if block:
            self.data = self.data[self.at :] + block
            self.at = 0
        return bool(block)

    def fill(self, wanted: int) -> bool:
        """Hold at least *wanted* bytes if there are that many; `False` at the end."""
        while len(self.data) - self.at < wanted:
            if not self.more():
                return False
        return True

    def peek(self) -> bytes:
        """The next byte that is no blank, skipping those; nothing at the end."""
        while True:
            found = _SPACE.match(self.data, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.data):
                return self.data[self.at : self.at + 1]
            if not self.more():
                return b""

    def skip(self, number: int) -> None:
        """Forget the next *number* bytes."""
        self.at += number


class Document:
    """One trace document; its parts come in the order of the file."""

    def __init__(self, window: Window, decoder: EventDecoder) -> None:
        self.truncated = False
        """Whether the file ended, or stopped making sense, before the document did."""
        self.trailing = False
        """Whether something follows the document."""
        self.decoder = decoder
        self._window = window

    def parts(self) -> Iterator[Value | Batch]:
        """All parts; raises `TraceError` when the first byte cannot start a trace."""
        window = self._window
        opener = window.peek()
        if opener not in (b"{", b"["):
            what = "it is empty" if not opener else "it does not start with { or ["
            raise TraceError(f"this is no JSON trace: {what}")
        window.skip(1)
        yield from self._array() if opener == b"[" else self._members()
        self.trailing = not self.truncated and window.peek() != b""

    def _members(self) -> Iterator[Value | Batch]:
        window = self._window
        while (next_byte := window.peek()) != b"}":
            if next_byte == b",":
                window.skip(1)
                continue
            try:
                name = self._key()
                if name != _EVENTS or window.peek() != b"[":
                    yield Value(key=name, body=self._value())
                    continue
            except _LostError:
                if not self._rescued():
                    self.truncated = True
                    return
            window.skip(1)
            yield from self._array()
        window.skip(1)

    def _array(self) -> Iterator[Batch]:
        window = self._window
        while (next_byte := window.peek()) != b"]":
            if not next_byte:
                self.truncated = True
                return
            if next_byte == b",":
                window.skip(1)
                continue
            final = not window.fill(CHUNK_BYTES)
            batch, ended = self._chunk(final=final)
            yield batch
            if ended:
                return
        window.skip(1)

    def _chunk(self, *, final: bool) -> tuple[Batch, bool]:
        """The next events, and whether the list of them ended."""
        window = self._window
        end = len(window.data) if final else _last_boundary(window.data, window.at)
        body = b"[" + window.data[window.at : end] + b"]"
        try:
            events = self.decoder.many(body)
        except FAULTS as fault:
            position = trailing(fault)
            if position is None:
                return self._salvage(end, final=final)
            try:
                events = self.decoder.many(body[:position])
            except FAULTS:
                return self._salvage(end, final=final)
            window.skip(position - 1)
            return Batch(events=events), True
        if final:
            self.truncated = True
        window.at = end
        return Batch(events=events), False

    def _salvage(self, end: int, *, final: bool) -> tuple[Batch, bool]:
        window = self._window
        saved = salvage(window.data[window.at : end], self.decoder, final=final)
        window.skip(saved.used)
        stuck = not saved.used and (len(window.data) > MOST_VALUE_BYTES or not window.more())
        ended = saved.ended or final or stuck
        if ended and not saved.ended:
            self.truncated = True
        batch = Batch(events=saved.events, dropped=saved.dropped, repaired=saved.repaired)
        return batch, ended

    def _key(self) -> str:
        window = self._window
        body = self._value() if window.peek() == b'"' else b""
        if not body or window.peek() != b":":
            raise _LostError
        window.skip(1)
        return body.strip(b'"').decode("utf-8", errors="replace")

    def _value(self) -> bytes:
        """Skip one value and return it."""
        window = self._window
        nested = window.peek() in (b'"', b"{", b"[")
        length = self._nested() if nested else self._scalar()
        body = window.data[window.at : window.at + length]
        window.skip(length)
        return body

    def _nested(self) -> int:
        window = self._window
        depth = scanned = 0
        while True:
            token = _TOKEN.search(window.data, window.at + scanned)
            text = token.group() if token else b""
            if token is None or text == b'"':
                # A text that has not ended yet is scanned again when there is more of it.
                scanned = (token.start() if token else len(window.data)) - window.at
                if len(window.data) - window.at > MOST_VALUE_BYTES or not window.more():
                    raise _LostError
                continue
            scanned = token.end() - window.at
            depth += _DEPTH.get(text, 0)
            if depth <= 0:
                return scanned

    def _scalar(self) -> int:
        window = self._window
        while True:
            found = _SCALAR.match(window.data, window.at)
            end = found.end() if found else window.at
            if end == window.at or end - window.at > MOST_VALUE_BYTES:
                raise _LostError
            if end < len(window.data) or not window.more():
                return end - window.at

    def _rescued(self) -> bool:
        """Move on to the next list of events behind a damaged value, if one can be found."""
        window = self._window
        found = _RESCUE.search(window.data, window.at)
        if found:
            window.at = found.end() - 1
        return found is not None


class _LostError(Exception):
    """A value does not end where values end."""


def _last_boundary(data: bytes, start: int) -> int:
    """Where the last event of *data* ends that another one follows; the end if none does."""
    reach = 2**16
    while True:
        begin = max(start, len(data) - reach)
        ends = [found.start() + 1 for found in BOUNDARY.finditer(data, begin)]
        if ends:
            return ends[-1]
        if begin == start:
            return len(data)
        reach *= 8
