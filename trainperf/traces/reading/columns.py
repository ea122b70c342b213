"""How do events become columns?  Chunk by chunk, so that events live only for one chunk.

Only what a kind of event can have is looked up, and a column that nothing fills takes no memory.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from trainperf.traces.event_table import DEVICE_WORK, NONE, Kind
from trainperf.traces.reading.decode import NO_SHAPES, Args, Decoded, Event, Instant, Number
from trainperf.traces.reading.growing import Growing
from trainperf.traces.reading.interning import Names, Places, Texts
from trainperf.traces.reading.kinds import MEMORY_CATEGORY, MEMORY_NAME, is_annotation
from trainperf.traces.reading.numbers import Identities, nanoseconds, quantities


Values = npt.NDArray[Any]
Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
Chunk = dict[str, Values]
"""Columns of one chunk by name; one that is missing is `NONE` throughout."""

_NO_ARGS = Args()
_NO_STREAM = 2**32 - 1
"""How CUDA says that a wait was for no stream in particular."""

_OPERATORS = (Kind.CPU_OP, Kind.ANNOTATION)
_DEVICE = (*DEVICE_WORK, Kind.DEVICE_SYNC)

_Field = Callable[[Sequence[Args]], list[Number]]
_Lookup = tuple[str, tuple[_Field, ...]]
# Not `attrgetter`, which takes twice as long as an attribute since Python 3.11.
_CORRELATION: _Lookup = ("correlation", (lambda args: [arg.correlation for arg in args],))
_EXTERNAL: _Lookup = (
    "external",
    (
        lambda args: [arg.external for arg in args],
        lambda args: [arg.external_2021 for arg in args],
    ),
)
_COPIED: _Lookup = ("bytes", (lambda args: [arg.copied for arg in args],))
_LOOKUPS: dict[tuple[Kind, ...], tuple[_Lookup, ...]] = {
    _OPERATORS: (_EXTERNAL, ("sequence", (lambda args: [arg.sequence for arg in args],))),
    (Kind.RUNTIME,): (_CORRELATION, _EXTERNAL, _COPIED),
    _DEVICE: (_CORRELATION, _EXTERNAL, _COPIED),
    (Kind.DEVICE_ANNOTATION,): (_EXTERNAL,),
    (Kind.PYTHON,): (
        ("python_id", (lambda args: [arg.python_id for arg in args],)),
        ("python_parent", (lambda args: [arg.python_parent for arg in args],)),
    ),
    (Kind.MEMORY,): (
        ("bytes", (lambda args: [arg.allocated for arg in args],)),
        ("total_bytes", (lambda args: [arg.total for arg in args],)),
    ),
}
"""For these kinds: a column, and the fields it comes from, the first that is there."""

_FAMILIES = np.array(
    [next((place for place, kinds in enumerate(_LOOKUPS) if kind in kinds), 255) for kind in Kind],
    dtype=np.uint8,
)
"""Place of each kind in `_LOOKUPS`, if it has one."""

_WITHOUT_TEXTS = ((Kind.RUNTIME,), (Kind.PYTHON,), (Kind.MEMORY,))
_QUANTITIES = frozenset({"bytes", "total_bytes"})


@dataclass(frozen=True, slots=True)
class _Family:
    """The events of one chunk that are of some kinds, and where in the chunk they stand."""

    where: Rows
    args: list[Args]
    rows: Iterator[Event]
    """The events themselves, once; seldom asked for."""


class Columns:
    """What has been read of a trace so far; all its texts together are bounded."""

    def __init__(self, most_characters: int) -> None:
        self.growing: dict[str, Growing] = {}
        self.names = Names(most_characters)
        self.texts = Texts(most_characters)
        self.dropped = 0
        self.rows = 0
        self._places = Places()
        self.threads = self._places.threads
        self._identities = Identities()
        self._ranges = bytearray()

    def add(self, events: Sequence[Decoded]) -> None:
        """Append the events that a table has rows for.

        Raises:
            InexactError: floats have lost digits of a time; decode with all of them.
        """
        # By exact type, which is faster, and a second time only where there are any.
        rows = [event for event in events if type(event) is Event]
        if Instant in set(map(type, events)):
            rows += [event for event in events if type(event) is Instant and _is_memory(event)]
        if not rows:
            return
        start_ns, started = nanoseconds([row.ts for row in rows])
        duration_ns, lasted = nanoseconds([row.dur for row in rows])
        good = started & lasted & (duration_ns >= 0)
        if not good.all():
            self.dropped += int(len(rows) - good.sum())
            rows = [row for row, is_good in zip(rows, good.tolist(), strict=True) if is_good]
            start_ns, duration_ns = start_ns[good], duration_ns[good]
        if rows:
            chunk: Chunk = {"start_ns": start_ns, "duration_ns": duration_ns}
            self._describe(rows, chunk)
            for column, values in chunk.items():
                if column not in self.growing:
                    self.growing[column] = Growing(values.dtype)
                self.growing[column].append(values, self.rows)
            self.rows += len(rows)

    def _describe(self, rows: Sequence[Event], chunk: Chunk) -> None:
        # Attributes in comprehensions: half the time of `attrgetter` since Python 3.11.
        count = len(rows)
        codes = map(self.names.__getitem__, [row.name for row in rows])
        chunk["name"] = np.fromiter(codes, np.int32, count)
        codes = map(self._places.__getitem__, [(row.cat, row.pid, row.tid) for row in rows])
        places = np.fromiter(codes, np.intp, count)
        chunk["thread"] = np.array(self._places.thread_of, np.int32)[places]
        chunk["kind"] = kinds = np.array(self._places.kind_of, np.uint8)[places]
        self._tell_ranges(chunk["name"], kinds)
        args = [row.args or _NO_ARGS for row in rows]
        families = _FAMILIES[kinds]
        there = set(families.tolist())
        for place, (wanted, lookups) in enumerate(_LOOKUPS.items()):
            # Most chunks hold one or two of the families.
            if place not in there:
                continue
            family = _family(rows, args, families == place)
            for column, fields in lookups:
                convert = quantities if column in _QUANTITIES else self._identities
                _put(chunk, column, family.where, _first(family.args, fields, convert))
            self._put_place(family, wanted, chunk)
            if wanted not in _WITHOUT_TEXTS:
                self._put_texts(family, chunk)
        for column in ("correlation", "external"):
            # Zero is how profilers say that there is none; the first is 1.
            if column in chunk:
                chunk[column][chunk[column] == 0] = NONE

    def _tell_ranges(self, names: Values, kinds: Values) -> None:
        """Make annotations of the operators whose names say that they are."""
        new = self.names.known[len(self._ranges) :]
        self._ranges.extend(is_annotation(str(name)) for name in new)
        ranges = np.frombuffer(self._ranges, dtype=np.bool_)
        kinds[ranges[names] & (kinds == Kind.CPU_OP)] = Kind.ANNOTATION

    def _put_place(self, family: _Family, kinds: tuple[Kind, ...], chunk: Chunk) -> None:
        """Stream and device of what has one."""
        if kinds == (Kind.MEMORY,):
            # Type 0 is the host; its memory is no device's.
            ids = [NONE if arg.device_type == 0 else arg.device_id for arg in family.args]
            _put(chunk, "device", family.where, self._identities(ids))
        if kinds not in (_DEVICE, (Kind.DEVICE_ANNOTATION,)):
            return
        streams, devices = _where_run(family)
        _put(chunk, "stream", family.where, self._identities(streams))
        _put(chunk, "device", family.where, self._identities(devices))

    def _put_texts(self, family: _Family, chunk: Chunk) -> None:
        """Shapes and stacks of operators, and what communication says of itself."""
        texts = self.texts
        told = [
            place
            for place, arg in enumerate(family.args)
            if arg.shapes is not NO_SHAPES
            or arg.collective is not None
            or arg.stack is not None
            or arg.shapes_2020 is not NO_SHAPES
        ]
        if not told:
            return
        where, args = family.where[told], [family.args[place] for place in told]
        shapes = [arg.shapes if arg.shapes_2020 is NO_SHAPES else arg.shapes_2020 for arg in args]
        codes = [NONE if shape is NO_SHAPES else texts.json(shape) for shape in shapes]
        _put(chunk, "shapes", where, np.array(codes, dtype=np.int32))
        for column in ("stack", "collective", "group", "dtype"):
            given = map(attrgetter(column), args)
            codes = [NONE if text is None or text == "" else texts.code(text) for text in given]
            _put(chunk, column, where, np.array(codes, dtype=np.int32))
        _put(chunk, "elements", where, quantities([arg.elements for arg in args]))


def _where_run(family: _Family) -> tuple[list[Number], list[Number]]:
    """Streams and devices; where the arguments lack them, the row of the drawing tells."""
    streams, devices = [arg.stream for arg in family.args], [arg.device for arg in family.args]
    usual = NONE not in streams and NONE not in devices and _NO_STREAM not in streams
    if usual and str not in set(map(type, streams)):
        return streams, devices
    rows = [*family.rows]
    streams = [row.tid if one == NONE else one for row, one in zip(rows, streams, strict=True)]
    devices = [row.pid if one == NONE else one for row, one in zip(rows, devices, strict=True)]
    return [NONE if one == _NO_STREAM else _number(one) for one in streams], devices


def _number(stream: Number) -> Number:
    return stream.removeprefix("stream ") if isinstance(stream, str) else stream


def _is_memory(event: Instant) -> bool:
    """Whether it is one; then it becomes an event like others, as those of 2021 lack a category."""
    event.cat, event.dur = MEMORY_CATEGORY, 0
    return event.name == MEMORY_NAME


def _family(rows: Sequence[Event], args: Sequence[Args], mine: Mask) -> _Family:
    chosen = mine.tobytes()
    return _Family(np.flatnonzero(mine), [*compress(args, chosen)], compress(rows, chosen))


def _first(
    args: Sequence[Args], fields: tuple[_Field, ...], convert: Callable[[Sequence[Any]], Values]
) -> Values:
    """The first of the fields that is there, for each of the *args*."""
    values = convert(fields[0](args))
    for field in fields[1:]:
        missing = values == NONE
        if missing.any():
            values[missing] = convert(field(args))[missing]
    return values


def _put(chunk: Chunk, column: str, where: Rows, values: Values) -> None:
    told = values != NONE
    if not told.any():
        return
    if column not in chunk:
        chunk[column] = np.full(len(chunk["start_ns"]), NONE, dtype=values.dtype)
    chunk[column][where[told]] = values[told]
