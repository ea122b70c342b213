"""The columns of a table while its trace is read: events live only for the chunk they came in.

Only what a kind of event can have is looked up, and a column that nothing fills takes no memory.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from trainperf.core.arrays import Places
from trainperf.traces.event_table import DEVICE_WORK, NONE, Kind
from trainperf.traces.reading.decode import NO_SHAPES, Args, Decoded, Event, Instant, Number, Text
from trainperf.traces.reading.values import (
    MEMORY_CATEGORY,
    MEMORY_NAME,
    Identities,
    Names,
    is_annotation,
    kind_of,
    nanoseconds,
    quantities,
    ratios,
)


Values = npt.NDArray[Any]
Chunk = dict[str, Values]
"""Columns of one chunk by name; one that is missing is `NONE` throughout."""

_NO_ARGS = Args()
_NO_STREAM = np.iinfo(np.uint32).max
"""How CUDA says that a wait was for no stream in particular."""

_OPERATORS = (Kind.CPU_OP, Kind.ANNOTATION)
_DEVICE = (*DEVICE_WORK, Kind.DEVICE_SYNC)

_Field = Callable[[Sequence[Args]], list[Number]]
_Lookup = tuple[str, tuple[_Field, ...]]
# Not `attrgetter`, which takes twice as long as an attribute since Python 3.11.
_CORRELATION: _Lookup = ("correlation", (lambda args: [arg.correlation for arg in args],))
_EXTERNAL: _Lookup = (
    "external",
    (lambda args: [arg.external for arg in args], lambda args: [arg.external_2021 for arg in args]),
)
_COPIED: _Lookup = ("bytes", (lambda args: [arg.copied for arg in args],))
_LOOKUPS: tuple[tuple[tuple[Kind, ...], tuple[_Lookup, ...]], ...] = (
    (_OPERATORS, (_EXTERNAL, ("sequence", (lambda args: [arg.sequence for arg in args],)))),
    ((Kind.RUNTIME,), (_CORRELATION, _EXTERNAL, _COPIED)),
    (
        _DEVICE,
        (
            _CORRELATION,
            _EXTERNAL,
            _COPIED,
            ("blocks_per_sm", (lambda args: [arg.blocks for arg in args],)),
            ("occupancy_percent", (lambda args: [arg.occupancy for arg in args],)),
        ),
    ),
    ((Kind.DEVICE_ANNOTATION,), (_EXTERNAL,)),
    (
        (Kind.PYTHON,),
        (
            ("python_id", (lambda args: [arg.python_id for arg in args],)),
            ("python_parent", (lambda args: [arg.python_parent for arg in args],)),
        ),
    ),
    (
        (Kind.MEMORY,),
        (
            ("bytes", (lambda args: [arg.allocated for arg in args],)),
            ("total_bytes", (lambda args: [arg.total for arg in args],)),
            ("reserved_bytes", (lambda args: [arg.reserved for arg in args],)),
        ),
    ),
)
"""A family of kinds; its columns, each with the fields it comes from: the first that is there."""

_MEMBERS = [np.isin(np.arange(len(Kind)), kinds) for kinds, _ in _LOOKUPS]
"""Which kinds each of `_LOOKUPS` is about."""

_WITHOUT_TEXTS = ((Kind.RUNTIME,), (Kind.PYTHON,), (Kind.MEMORY,))
_CONVERTED: dict[str, Callable[[Sequence[Any]], Values]] = {
    **dict.fromkeys(("bytes", "total_bytes", "reserved_bytes"), quantities),
    **dict.fromkeys(("blocks_per_sm", "occupancy_percent"), ratios),
}
"""By column; the others only tell things apart."""


@dataclass(frozen=True, slots=True)
class _Family:
    """The events of one chunk that are of some kinds, and where in the chunk they stand."""

    where: Places
    args: list[Args]
    rows: Iterator[Event]
    """The events themselves, once; seldom asked for."""


class Columns:
    """What has been read of a trace so far; all its texts together are bounded."""

    def __init__(self, most_characters: int) -> None:
        self.names = Names[str](most_characters)
        self.texts = Names[str | bytes](most_characters)
        self.threads: dict[tuple[str, str], int] = {}
        self.dropped = 0
        self.rows = 0
        self._growing: dict[str, tuple[np.dtype[Any], bytearray]] = {}
        self._places = Names[tuple[str | None, Text, Text]](most_characters)
        """Category, process and thread: one look-up an event for what is two columns."""
        self._kinds: list[Kind] = []
        self._threads: list[int] = []
        self._identities = Identities()
        self._ranges = bytearray()

    def __contains__(self, column: str) -> bool:
        return column in self._growing

    def column(self, name: str) -> Values:
        """A column that something filled, all of it; nothing can be added to it afterwards."""
        dtype, grown = self._growing[name]
        return np.frombuffer(self._filled(dtype, grown), dtype)

    def pop(self, name: str) -> Values:
        """The same, and forgotten here."""
        values = self.column(name)
        del self._growing[name]
        return values

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
                dtype, grown = self._growing.setdefault(column, (values.dtype, bytearray()))
                self._filled(dtype, grown).extend(values.tobytes())
            self.rows += len(rows)

    def _filled(self, dtype: np.dtype[Any], grown: bytearray) -> bytearray:
        """A column with `NONE` in the rows that nobody filled."""
        gap = self.rows - len(grown) // dtype.itemsize
        grown += np.full(gap, np.int64(NONE), dtype).tobytes()
        return grown

    def _describe(self, rows: Sequence[Event], chunk: Chunk) -> None:
        """Fill the columns that a chunk's events have, but for their times.

        Worked example: of `[aten::mm on thread 1, gemm on stream 7]` the first is of the family
        of operators (`external`, `sequence`, texts) and the second of the device's (`correlation`,
        `external`, `bytes`, stream, device, texts).  `stream` is then `[NONE, 7]`, and a column
        that neither has, as `python_id`, is not in the chunk.
        """
        kinds = self._name_thread_kind(rows, chunk)
        args = [row.args or _NO_ARGS for row in rows]
        for (family_kinds, lookups), is_member in zip(_LOOKUPS, _MEMBERS, strict=True):
            mine = is_member[kinds]
            if not mine.any():  # most chunks hold one or two of the families
                continue
            chosen = mine.tobytes()
            family = _Family(
                np.flatnonzero(mine), [*compress(args, chosen)], compress(rows, chosen)
            )
            for column, fields in lookups:
                convert = _CONVERTED.get(column, self._identities)
                _put(chunk, column, family.where, _first(family.args, fields, convert))
            self._put_place(family, family_kinds, chunk)
            if family_kinds not in _WITHOUT_TEXTS:
                self._put_texts(family, chunk)
        for column in ("correlation", "external"):
            # Zero is how profilers say that there is none; the first is 1.
            if column in chunk:
                chunk[column][chunk[column] == 0] = NONE

    def _name_thread_kind(self, rows: Sequence[Event], chunk: Chunk) -> Values:
        """The columns that every event has; returns the kinds."""
        # Attributes in comprehensions: half the time of `attrgetter` since Python 3.11.
        names = map(self.names.__getitem__, [row.name for row in rows])
        chunk["name"] = np.fromiter(names, np.int32, len(rows))
        places = map(self._places.__getitem__, [(row.cat, row.pid, row.tid) for row in rows])
        place = np.fromiter(places, np.intp, len(rows))
        for category, process, thread in self._places.in_order[len(self._kinds) :]:
            self._kinds.append(kind_of(category))
            pair = str(process), str(thread)
            self._threads.append(self.threads.setdefault(pair, len(self.threads)))
        chunk["thread"] = np.array(self._threads, np.int32)[place]
        chunk["kind"] = kinds = np.array(self._kinds, np.uint8)[place]
        # Annotations are among the operators, and told by their names.
        self._ranges.extend(map(is_annotation, self.names.in_order[len(self._ranges) :]))
        ranges = np.frombuffer(self._ranges, dtype=np.bool_)
        kinds[ranges[chunk["name"]] & (kinds == Kind.CPU_OP)] = Kind.ANNOTATION
        return kinds

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
        with_texts = [
            place
            for place, arg in enumerate(family.args)
            if arg.shapes is not NO_SHAPES
            or arg.collective is not None
            or arg.stack is not None
            or arg.shapes_2020 is not NO_SHAPES
        ]
        if not with_texts:
            return
        where, args = family.where[with_texts], [family.args[place] for place in with_texts]
        shapes = [arg.shapes if arg.shapes_2020 is NO_SHAPES else arg.shapes_2020 for arg in args]
        codes = [NONE if shape is NO_SHAPES else texts[bytes(shape)] for shape in shapes]
        _put(chunk, "shapes", where, np.array(codes, dtype=np.int32))
        for column in ("stack", "collective", "group", "dtype"):
            given = map(attrgetter(column), args)
            codes = [NONE if text is None or text == "" else texts[str(text)] for text in given]
            _put(chunk, column, where, np.array(codes, dtype=np.int32))
        _put(chunk, "elements", where, quantities([arg.elements for arg in args]))


def _where_run(family: _Family) -> tuple[list[Number], list[Number]]:
    """Streams and devices of device events.

    Usually the arguments say both.  Where they do not, the event's own row in the drawing does:
    `{"pid": 0, "tid": "stream 7", "args": {}}` ran on stream 7 of device 0.
    """
    streams, devices = [arg.stream for arg in family.args], [arg.device for arg in family.args]
    is_complete = NONE not in streams and NONE not in devices
    if is_complete and _NO_STREAM not in streams and str not in set(map(type, streams)):
        return streams, devices
    for place, row in enumerate(family.rows):
        if streams[place] == NONE:
            streams[place] = row.tid
        if devices[place] == NONE:
            devices[place] = row.pid
    return [NONE if stream == _NO_STREAM else _number(stream) for stream in streams], devices


def _number(stream: Number) -> Number:
    return stream.removeprefix("stream ") if isinstance(stream, str) else stream


def _is_memory(event: Instant) -> bool:
    """Whether it is one; then it becomes an event like others, as those of 2021 lack a category."""
    event.cat, event.dur = MEMORY_CATEGORY, 0
    return event.name == MEMORY_NAME


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


def _put(chunk: Chunk, column: str, where: Places, values: Values) -> None:
    given = values != NONE
    if not given.any():
        return
    if column not in chunk:
        chunk[column] = np.full(len(chunk["start_ns"]), NONE, dtype=values.dtype)
    chunk[column][where[given]] = values[given]
