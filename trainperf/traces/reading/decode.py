"""Decoder of events: typed, and only the fields that a column needs.

Nothing here is kept: a chunk of a few megabytes is decoded, turned into columns and forgotten.
"""

import re
from contextlib import suppress
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from trainperf.traces.event_table import NONE


Number = int | float | str | None
"""What stands where a number should; columns take the ones that are."""

Text = str | int | float | None


NO_SHAPES = msgspec.Raw()


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that a column is made of."""

    external: Number = msgspec.field(name="External id", default=NONE)
    external_2021: Number = msgspec.field(name="external id", default=NONE)
    correlation: Number = NONE
    blocks: Number = msgspec.field(name="blocks per SM", default=NONE)
    occupancy: Number = msgspec.field(name="est. achieved occupancy %", default=NONE)
    stream: Number = NONE
    device: Number = NONE
    copied: Number = msgspec.field(name="bytes", default=NONE)
    allocated: Number = msgspec.field(name="Bytes", default=NONE)
    total: Number = msgspec.field(name="Total Allocated", default=NONE)
    reserved: Number = msgspec.field(name="Total Reserved", default=NONE)
    device_type: Number = msgspec.field(name="Device Type", default=NONE)
    device_id: Number = msgspec.field(name="Device Id", default=NONE)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=NO_SHAPES)
    shapes_2020: msgspec.Raw = msgspec.field(name="Input dims", default=NO_SHAPES)
    collective: Text = msgspec.field(name="Collective name", default=None)
    group: Text = msgspec.field(name="Process Group Name", default=None)
    elements: Number = msgspec.field(name="In msg nelems", default=NONE)
    dtype: Text = None
    sequence: Number = msgspec.field(name="Sequence number", default=NONE)
    python_id: Number = msgspec.field(name="Python id", default=NONE)
    python_parent: Number = msgspec.field(name="Python parent id", default=NONE)
    stack: Text = msgspec.field(name="Call stack", default=None)


class Event(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """One complete event as the file has it; `ts` and `dur` in microseconds."""

    cat: str | None = None
    name: str = ""
    pid: Text = None
    tid: Text = None
    # Untyped, because only untyped numbers go through the hook that keeps all their digits.
    ts: Any = None
    dur: Any = None
    args: Args | None = None


class Instant(Event, gc=False, tag_field="ph", tag="i"):
    """An event without a length: an allocation, or a mark that nobody needs."""


class Ignored(msgspec.Struct, gc=False):
    """An event that no column is made of."""


Decoded = Event | Ignored

_OTHER_PHASES = "sftMICBEbenSTpFNODPRcvVa"
"""Flows, metadata, counters, and what else the format has: read for their end only."""

_IGNORED = tuple(
    msgspec.defstruct(f"Ignored{phase}", [], bases=(Ignored,), tag_field="ph", tag=phase, gc=False)
    for phase in _OTHER_PHASES
)
_EVENT: Any = reduce(or_, _IGNORED, Event | Instant)

FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for bytes that are not what they should be."""

_SHAPES = ("Input Dims", "Input dims")
_SCALAR = (str, int, float, Decimal)
_VALUE = msgspec.json.Decoder(msgspec.Raw)
_CUT = "Input data was truncated"
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")


class EventDecoder:
    """Decodes events.

    `exact` keeps all digits of their times, at half the speed: a float of 64 bits tells nanoseconds
    apart up to 101 days; times since 1970 do not fit.
    """

    def __init__(self, *, exact: bool = False) -> None:
        hook = Decimal if exact else None
        self._many: msgspec.json.Decoder[list[Decoded]] = msgspec.json.Decoder(
            list[_EVENT], float_hook=hook
        )
        self._single: msgspec.json.Decoder[Decoded] = msgspec.json.Decoder(_EVENT, float_hook=hook)
        self._any = msgspec.json.Decoder(float_hook=hook)

    def many(self, body: bytes) -> list[Decoded]:
        """Decode a JSON list of events; raises one of `FAULTS`."""
        return self._many.decode(body)

    def event(self, body: bytes) -> Decoded | None:
        """Decode one event, without its fields of wrong types; `None` if it is none."""
        with suppress(*FAULTS):
            try:
                return self._single.decode(body)
            except msgspec.ValidationError:
                usual = msgspec.json.encode(_without_odd(self._any.decode(body)))
                return self._single.decode(usual)
        return None


def _without_odd(value: object) -> dict[str, object]:
    """An event's fields and arguments that have types which they may have; none of what is none."""
    if not isinstance(value, dict):
        return {}
    kept: dict[str, object] = {
        key: part for key, part in value.items() if isinstance(part, _SCALAR)
    }
    if "name" in value:
        kept["name"] = str(value["name"] or "")
    args = value.get("args")
    if isinstance(args, dict):
        kept["args"] = {
            key: part
            for key, part in args.items()
            if isinstance(part, list if key in _SHAPES else _SCALAR)
        }
    return kept


def value_end(data: bytes | memoryview) -> int | None:
    """Where the JSON value ends that *data* begins with, at most at its end; `None` if damaged."""
    try:
        _VALUE.decode(data)
    except FAULTS as fault:
        beyond = _TRAILING.search(str(fault))
        if beyond:  # the decoder counts the character that it stumbled over
            return int(beyond[1]) - 1
        return len(data) if str(fault) == _CUT else None
    return len(data)
