"""What can still be read where a chunk does not decode?  Event by event, mending what can be told.

What cannot be mended is dropped and counted; nothing that is dropped takes its neighbour along.
"""

import re
from dataclasses import dataclass

import msgspec

from trainperf.traces.reading.decode import FAULTS, Event, EventDecoder
from trainperf.traces.reading.mend import mend


BOUNDARY = re.compile(rb'\}\s*,\s*\{\s*"')
"""Between two events, or between two objects of a list inside one."""

_SURE = re.compile(rb'\}\s*,\s*\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|s|bp|args)"\s*:')
"""Between two events, as far as their keys tell."""

_END = re.compile(rb'\}(?=\s*(?:,\s*(?:[^"\s]|\Z)|\]|\Z))')
"""Where an event may end."""

_LIST_END = re.compile(rb"\}\s*\]")
_BETWEEN = re.compile(rb"[\s,]*")
_NO_OBJECT = re.compile(rb"[^,\]\s{]+")
_MOST_ENDS = 16
"""So many places are tried as the end of an event that holds lists of objects."""

_MOST_MENDED_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """What came out of a chunk: `used` bytes of it are done with; `ended` if its list ended."""

    events: list[Event]
    dropped: int
    repaired: int
    used: int
    ended: bool


def salvage(data: bytes, decoder: EventDecoder, *, final: bool) -> Salvaged:
    """Read the events of *data*, which starts at one; all of it is used if it is the *final* one.

    Otherwise an event at the end that does not decode is left for when there is more.
    """
    events: list[Event] = []
    dropped = repaired = at = 0
    while True:
        at = _past(_BETWEEN, data, at)
        if at == len(data) or data[at] == ord("]"):
            break
        if data[at] != ord("{"):
            dropped += 1
            at = max(at + 1, _past(_NO_OBJECT, data, at))
            continue
        event, length, mended = _read(data, at, decoder)
        if event is not None:
            events.append(event)
            repaired += mended
            at += length
            continue
        end = _next_event(data, at, final=final)
        if end is None:
            break
        dropped += end < len(data)
        at = end
    ended = at < len(data) and data[at] == ord("]")
    return Salvaged(events=events, dropped=dropped, repaired=repaired, used=at + ended, ended=ended)


def _past(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found else at


def _next_event(data: bytes, at: int, *, final: bool) -> int | None:
    """Where the damaged event at *at* ends; `None` if more of the file may tell."""
    found = _SURE.search(data, at)
    if found is None and final:
        found = _LIST_END.search(data, at)
    if found is not None:
        return found.start() + 1
    return len(data) if final else None


def _read(data: bytes, at: int, decoder: EventDecoder) -> tuple[Event | None, int, bool]:
    """The event at *at*, its length, and whether it was mended."""
    sure = _SURE.search(data, at)
    # Mending must not reach beyond the next event, or two would become one.
    mendable = min(sure.start() + 1 if sure else len(data), at + _MOST_MENDED_BYTES)
    for tried, end in enumerate(_END.finditer(data, at)):
        piece = data[at : end.end()]
        event = _decoded(piece, decoder)
        if event is not None:
            return event, len(piece), False
        if end.end() <= mendable:
            for loose in (False, True):
                event = _decoded(mend(piece, loose=loose), decoder)
                if event is not None:
                    return event, len(piece), True
        if tried == _MOST_ENDS:
            break
    return None, 0, False


def _decoded(piece: bytes, decoder: EventDecoder) -> Event | None:
    try:
        return decoder.one(piece)
    except msgspec.ValidationError:
        pass
    except FAULTS:
        return None
    try:
        return decoder.loose(piece)
    except FAULTS:
        return None
