"""Salvage of a chunk that does not decode: each event by itself, as it is, mended, or not at all.

What cannot be mended is dropped and counted; nothing that is dropped takes its neighbour along.

Profilers of the past wrote names as they came: control characters, backslashes of Windows paths,
bare quotes, bytes of another encoding, halves of surrogate pairs; and numbers JSON has no word for.
"""

import json
import re
from typing import NamedTuple

from trainperf.traces.reading.decode import Decoded, EventDecoder, value_end


BETWEEN = re.compile(rb"[\s,]*")

_START = re.compile(rb',\s*\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|s|bp|args)"\s*:')
"""Before an event, as far as its first key tells: a torn one has no bracket at its end."""

_LIST_END = re.compile(rb"(?<=\})\s*\]")

_TOKEN = re.compile(
    r'"(?:.*?"(?=\s*(?:[}\]:]|,\s*["{\[\d\-tfn]))|.*)'
    r"|-?\b(?:NaN|nan|Infinity|inf)\b|[-+\d.eE]{400,}",
    re.DOTALL,
)
"""A number that JSON does not have, or a text.

A text goes up to the first quote behind which a value may end: a bare quote has words around it.
"""

_WITHIN = re.compile(
    r"(?P<sound>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r'|\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}))'
    r"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r'|[\\"\x00-\x1f]'
)
"""What is escaped in a text, or should be."""


class Salvage(NamedTuple):
    """Events that stood together, and what was lost among them."""

    events: list[Decoded]
    dropped: int
    repaired: int
    used: int
    """Bytes that are done with."""


def salvage(decoder: EventDecoder, data: bytes, *, final: bool) -> Salvage:
    """The events of *data*, which starts at one.

    All of them up to the end of the list if it is *final*; otherwise an event at the end that does
    not decode is left for when there is more.
    """
    events: list[Decoded] = []
    dropped = repaired = at = 0
    while (at := past(BETWEEN, data, at)) < len(data) and data[at] != ord("]"):
        length = value_end(memoryview(data)[at:])
        end = at + (length or 0)
        event = decoder.event(data[at:end])
        if event is None:
            if length is None or (final and end == len(data)):
                end = _damaged_until(data, at, final=final)
            if end == len(data) and not final:
                break
            event = decoder.event(_mended(data[at:end]))
            repaired += event is not None
            dropped += event is None and end < len(data)
        if event is not None:
            events.append(event)
        at = end
    return Salvage(events, dropped, repaired, at)


def past(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    """Where what *pattern* matches at *at* ends; *at* if that is nothing."""
    match = pattern.match(data, at)
    return match.end() if match else at


def _damaged_until(data: bytes, at: int, *, final: bool) -> int:
    """Where the damaged event at *at* ends, as far as *data* tells."""
    following = _START.search(data, at + 1)
    if following is None and final:
        following = _LIST_END.search(data, at)
    return following.start() if following else len(data)


def _mended(piece: bytes) -> bytes:
    """The JSON of one event with its texts and numbers made valid, as far as that can be told."""
    return _TOKEN.sub(_token, piece.decode("utf-8", errors="replace")).encode()


def _token(match: re.Match[str]) -> str:
    text = match.group()
    return f'"{_WITHIN.sub(_character, text[1:-1])}"' if text.startswith('"') else "null"


def _character(match: re.Match[str]) -> str:
    if match.lastgroup == "half":
        return "\\ufffd"
    return match.group() if match.lastgroup == "sound" else json.dumps(match.group())[1:-1]
