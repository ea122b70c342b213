"""Salvage of a chunk that does not decode: event by event, mending what can be told.

What cannot be mended is dropped and counted; nothing that is dropped takes its neighbour along.

Profilers of the past wrote names as they came: control characters, backslashes of Windows paths,
bare quotes, bytes of another encoding, halves of surrogate pairs; and numbers JSON has no word for.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from trainperf.traces.reading.decode import FAULTS, Decoded, EventDecoder


BOUNDARY = re.compile(rb'\}\s*,\s*\{\s*"')
"""Between two events, or between two objects of a list inside one."""

TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{}]', re.DOTALL)
"""A whole text, a bracket, or the quote of a text that does not end."""

DEPTH = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}

_SURE = re.compile(rb'\}\s*,\s*\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|s|bp|args)"\s*:')
"""Between two events, as far as their keys tell."""

_START = re.compile(rb',\s*\{\s*"ph"\s*:')

_END = re.compile(rb'\}(?=\s*(?:,\s*(?:[^"\s]|\Z)|\]|\Z))')
"""Where an event may end."""

_LIST_END = re.compile(rb"\}\s*\]")
_BETWEEN = re.compile(rb"[\s,]*")
_NO_OBJECT = re.compile(rb"[^,\]\s{]+")
_MOST_ENDS = 16
_MOST_EVENT_BYTES = 2**20
"""What lies further from an event's start is not looked at to find its end."""

_MOST_MENDED_BYTES = 2**16
_PATIENCE_BYTES = 2**22
"""So much of a file is searched in vain for ends of events before that is given up."""


_STRICT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_LOOSE = r'".*?"(?=\s*(?:[}\]:]|,\s*["{\[\d\-tfn]))'
"""Up to the first quote behind which a value may end: a bare quote inside has words around it."""

_FIELDS = re.compile(r'(?<!\\)"\s*:|[{,]\s*"')
"""A bare quote where a key starts or ends."""

_NO_NUMBER = r"-?\b(?:NaN|nan|Infinity|inf)\b|[-+\d.eE]{400,}"
_WITHIN = re.compile(
    r"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r'|(?P<valid>\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'
    r"|(?P<backslash>\\)"
    r'|(?P<quote>")'
    r"|(?P<control>[\x00-\x1f])"
)
_STRICT_TOKEN = re.compile(f"{_STRICT}|{_NO_NUMBER}", re.DOTALL)
_LOOSE_TOKEN = re.compile(f"{_LOOSE}|{_NO_NUMBER}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """What came out of a chunk: `used` bytes of it are done with; `ended` if its list ended."""

    events: list[Decoded]
    dropped: int
    repaired: int
    used: int
    ended: bool


class Salvage:
    """Reads damaged chunks of one file, with patience that success renews."""

    def __init__(self, decoder: EventDecoder) -> None:
        self._decoder = decoder
        self._patience_bytes = _PATIENCE_BYTES

    def events(self, data: bytes, *, final: bool) -> Salvaged:
        """Read the events of *data*, which starts at one; all of it is used if it is *final*.

        Otherwise an event at the end that does not decode is left for when there is more.
        """
        events: list[Decoded] = []
        dropped = repaired = at = 0
        while True:
            at = _past(_BETWEEN, data, at)
            if at == len(data) or data[at] == ord("]"):
                break
            if data[at] != ord("{"):
                dropped += 1
                at = self._past_value(data, at)
                continue
            event, end, mended = self._read(data, at)
            if event is not None:
                self._patience_bytes = min(_PATIENCE_BYTES, self._patience_bytes + 2**16)
                events.append(event)
                repaired += mended
                at = end
                continue
            # What runs beyond the end may be sound, and is told apart when there is more.
            if not final and end == len(data) and end - at < _MOST_EVENT_BYTES:
                break
            following = _next_event(data, at, final=final)
            if following is None:
                break
            dropped += following < len(data)
            at = following
        ended = at < len(data) and data[at] == ord("]")
        used = at + ended
        return Salvaged(events=events, dropped=dropped, repaired=repaired, used=used, ended=ended)

    def _read(self, data: bytes, at: int) -> tuple[Decoded | None, int, bool]:
        """The event at *at*, where it ends, and whether it was repaired.

        Without an event, the end is that of *data* if the event runs beyond.
        """
        sure = _SURE.search(data, at)
        if sure is not None:
            end = sure.start() + 1
            event, mended = self._piece(data[at:end], loose=True)
            if event is not None:
                return event, end, mended
        extent = self._extent(data, at)
        if extent is not None:
            event, mended = self._piece(data[at:extent], loose=False)
            if event is not None:
                return event, extent, mended
        for end in () if sure else _ends(data, at):
            event, mended = self._piece(data[at:end], loose=True)
            if event is not None:
                return event, end, mended
        return None, len(data) if extent is None else at, False

    def _past_value(self, data: bytes, at: int) -> int:
        extent = self._extent(data, at) if data[at] == ord("[") else None
        return extent or max(at + 1, _past(TOKEN, data, at), _past(_NO_OBJECT, data, at))

    def _extent(self, data: bytes, at: int) -> int | None:
        """Where the brackets that open at *at* are closed; `None` if not within reach."""
        reach = min(len(data), at + max(0, min(_MOST_EVENT_BYTES, self._patience_bytes)))
        depth = 0
        for token in TOKEN.finditer(data, at, reach):
            depth += DEPTH.get(token.group(), 0)
            if depth == 0:
                self._patience_bytes -= token.end() - at
                return token.end()
        self._patience_bytes -= reach - at
        return None

    def _piece(self, piece: bytes, *, loose: bool) -> tuple[Decoded | None, bool]:
        event = self._decoded(piece)
        if event is not None or len(piece) > min(_MOST_MENDED_BYTES, self._patience_bytes):
            return event, False
        event = self._decoded(mend(piece, loose=False))
        if event is None and loose:
            event = self._decoded(mend(piece, loose=True))
        if event is None:
            self._patience_bytes -= len(piece)
        return event, event is not None

    def _decoded(self, piece: bytes) -> Decoded | None:
        try:
            return self._decoder.decode_event(piece)
        except msgspec.ValidationError:
            pass
        except FAULTS:
            return None
        try:
            return self._decoder.loose(piece)
        except FAULTS:
            return None


def _past(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    match = pattern.match(data, at)
    return match.end() if match else at


def _ends(data: bytes, at: int) -> Iterator[int]:
    for tried, end in enumerate(_END.finditer(data, at)):
        if tried == _MOST_ENDS:
            return
        yield end.end()


def _next_event(data: bytes, at: int, *, final: bool) -> int | None:
    """Where the damaged event at *at* ends; `None` if more of the file may tell."""
    ends = [match.start() + 1 for match in [_SURE.search(data, at)] if match]
    # A torn event has no bracket at its end; the next one still starts as profilers start them.
    ends += [match.start() for match in [_START.search(data, at)] if match]
    if not ends and final:
        ends = [match.start() + 1 for match in [_LIST_END.search(data, at)] if match]
    if ends:
        return min(ends)
    return len(data) if final else None


def mend(piece: bytes, *, loose: bool) -> bytes:
    """The JSON of one event made valid; *loose* also takes quotes inside texts for characters.

    Numbers that JSON does not have become `null`.  The result may still be invalid.
    """
    text = piece.decode("utf-8", errors="replace")
    try:
        return (_LOOSE_TOKEN if loose else _STRICT_TOKEN).sub(_token, text).encode()
    except _TornError:
        return piece


class _TornError(Exception):
    """A text holds what looks like fields: two events in one."""


def _token(match_: re.Match[str]) -> str:
    text = match_.group()
    if not text.startswith('"'):
        return "null"
    if _FIELDS.search(text, 1, len(text) - 1):
        raise _TornError
    return f'"{_WITHIN.sub(_character, text[1:-1])}"'


def _character(match_: re.Match[str]) -> str:
    text = match_.group()
    match match_.lastgroup:
        case "half":
            return "\\ufffd"
        case "backslash":
            return "\\\\"
        case "quote":
            return '\\"'
        case "control":
            return f"\\u{ord(text):04x}"
        case _:
            return text
