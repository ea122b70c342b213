"""Splitter of a document larger than memory into batches of whole events.

Whitespace, the order of keys and the place of `traceEvents` are whatever the last tool made them.
A cut between events is a guess that the decoder proves: a list of events that decodes was cut at
events, because a cut inside one would leave a bracket open.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainperf.core.errors import TraceError
from trainperf.traces.reading.decode import FAULTS, Decoded, EventDecoder, trailing
from trainperf.traces.reading.salvage import BOUNDARY, DEPTH, TOKEN, Salvage


CHUNK_BYTES = 2**19
"""Small enough that the events of a chunk stay in the processor's cache until they are columns."""

MOST_VALUE_BYTES = 2**25
"""A value or an event that is larger is taken for damage."""

_EVENTS = "traceEvents"
_SPACE = re.compile(rb"[ \t\r\n]*")
_SCALAR = re.compile(rb"[^,\]}\s]*")
_COMMAS = re.compile(rb"[\s,]*")
_RESCUE = re.compile(rb'"traceEvents"\s*:\s*\[')


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value that stands next to the events, as JSON."""

    key: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Events that stood together, and what was lost among them."""

    events: list[Decoded]
    dropped: int = 0
    repaired: int = 0


class ByteWindow:
    """A stretch of the document that moves on; `more` appends, `skip` forgets."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.data = b""
        self.at = 0
        self._blocks = blocks

    def more(self) -> bool:
        """Append the next block; `False` when there is none."""
        block = next(self._blocks, b"")
        if block:
            self.data = b"".join((memoryview(self.data)[self.at :], block))
            self.at = 0
        return bool(block)

    def grow(self) -> bool:
        """Hold twice as much; `False` at the end, or beyond what one value may take."""
        held = len(self.data) - self.at
        self.fill(2 * held)
        return held < len(self.data) - self.at <= MOST_VALUE_BYTES

    def fill(self, wanted: int) -> bool:
        """Hold at least *wanted* bytes if there are that many; `False` at the end."""
        while len(self.data) - self.at < wanted:
            if not self.more():
                return False
        return True

    def peek(self) -> bytes:
        """The next byte that is no blank, skipping those; nothing at the end."""
        while True:
            self.skip_run(_SPACE)
            if self.at < len(self.data):
                return self.data[self.at : self.at + 1]
            if not self.more():
                return b""

    def skip_run(self, pattern: re.Pattern[bytes]) -> None:
        """Forget what *pattern* matches of what is held."""
        match = pattern.match(self.data, self.at)
        self.at = match.end() if match else self.at

    def skip(self, number: int) -> None:
        """Forget the next *number* bytes."""
        self.at += number


class TraceDocument:
    """One trace document; its parts come in the order of the file."""

    def __init__(self, window: ByteWindow, decoder: EventDecoder) -> None:
        self.truncated = False
        """Whether the file ended, or stopped making sense, before the document did."""
        self.trailing = False
        """Whether something follows the document."""
        self.decoder = decoder
        self._window = window
        self._rescue = Salvage(decoder)

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
                window.skip_run(_COMMAS)
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
                window.skip_run(_COMMAS)
                continue
            final = not window.fill(CHUNK_BYTES + 1)
            batch, ended = self._chunk(final=final)
            yield batch
            if ended:
                return
        window.skip(1)

    def _chunk(self, *, final: bool) -> tuple[Batch, bool]:
        """The next events, and whether the list of them ended."""
        window = self._window
        end = len(window.data) if final else _last_boundary(window.data, window.at)
        # Copied once: a megabyte at a time, copies are what the splitter takes.
        body = b"".join((b"[", memoryview(window.data)[window.at : end], b"]"))
        try:
            events = self.decoder.many(body)
        except FAULTS as fault:
            position = trailing(fault)
            if position is None:
                return self._salvage(final=final)
            try:
                events = self.decoder.many(body[:position])
            except FAULTS:
                return self._salvage(final=final)
            window.skip(position - 1)
            return Batch(events=events), True
        if final:
            self.truncated = True
        window.at = end
        return Batch(events=events), False

    def _salvage(self, *, final: bool) -> tuple[Batch, bool]:
        window = self._window
        saved = self._rescue.events(window.data[window.at :], final=final)
        window.skip(saved.used)
        # Twice as much each time, so that an event without end is not looked through for ever.
        stuck = not saved.used and not window.grow()
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
            token = TOKEN.search(window.data, window.at + scanned)
            text = token.group() if token else b""
            if token is None or text == b'"':
                # A text that has not ended yet is scanned again when there is more of it.
                scanned = (token.start() if token else len(window.data)) - window.at
                if not window.grow():
                    raise _LostError
                continue
            scanned = token.end() - window.at
            depth += DEPTH.get(text, 0)
            if depth <= 0:
                return scanned

    def _scalar(self) -> int:
        window = self._window
        while True:
            match = _SCALAR.match(window.data, window.at)
            end = match.end() if match else window.at
            if end == window.at or end - window.at > MOST_VALUE_BYTES:
                raise _LostError
            if end < len(window.data) or not window.more():
                return end - window.at

    def _rescued(self) -> bool:
        """Move on to the next list of events behind a damaged value, if one can be found."""
        window = self._window
        match = _RESCUE.search(window.data, window.at)
        if match:
            window.at = match.end() - 1
        return match is not None


class _LostError(Exception):
    """A value does not end where values end."""


def _last_boundary(data: bytes, start: int) -> int:
    """Where an event ends that another one follows, about a chunk away; the end if none does."""
    stop = min(len(data), start + CHUNK_BYTES)
    reach = 2**14
    while True:
        begin = max(start, stop - reach)
        ends = [match.start() + 1 for match in BOUNDARY.finditer(data, begin, stop)]
        if ends:
            return ends[-1]
        if begin == start:
            match = BOUNDARY.search(data, start)
            return match.start() + 1 if match else len(data)
        reach *= 8
