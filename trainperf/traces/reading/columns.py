"""How do events become columns?  Chunk by chunk, so that events live only for one chunk.

Only what a kind of event can have is looked up, and a column that nothing fills takes no memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from trainperf.traces.reading.decode import NO_SHAPES, Args, Decoded, Event, Instant, Number
from trainperf.traces.reading.growing import Growing
from trainperf.traces.reading.interning import Kinds, Names, Texts, Threads
from trainperf.traces.reading.kinds import MEMORY_CATEGORY, MEMORY_NAME, is_annotation
from trainperf.traces.reading.numbers import Identities, nanoseconds, quantities
from trainperf.traces.table import DEVICE_WORK, NONE, Kind


Values = npt.NDArray[Any]
Rows = npt.NDArray[np.intp]
Chunk = dict[str, Values]
"""Columns of one chunk by name; one that is missing is `NONE` throughout."""

_NO_ARGS = Args()
_NO_STREAM = 2**32 - 1
"""How CUDA says that a wait was for no stream in particular."""

_OPERATORS = (Kind.CPU_OP, Kind.ANNOTATION)
_DEVICE = (*DEVICE_WORK, Kind.DEVICE_SYNC)

_Lookup = tuple[str, tuple[str, ...]]
_CORRELATION: _Lookup = ("correlation", ("correlation",))
_EXTERNAL: _Lookup = ("external", ("external", "external_2021"))
_COPIED: _Lookup = ("bytes", ("copied",))
_LOOKUPS: dict[tuple[Kind, ...], tuple[_Lookup, ...]] = {
    _OPERATORS: (_EXTERNAL, ("sequence", ("sequence",))),
    (Kind.RUNTIME,): (_CORRELATION, _EXTERNAL, _COPIED),
    _DEVICE: (_CORRELATION, _EXTERNAL, _COPIED),
    (Kind.DEVICE_ANNOTATION,): (_EXTERNAL,),
    (Kind.PYTHON,): (("python_id", ("python_id",)), ("python_parent", ("python_parent",))),
    (Kind.MEMORY,): (("bytes", ("allocated",)), ("total_bytes", ("total",))),
}
"""For these kinds: a column, and the fields it comes from, the first that is there."""

_WITHOUT_TEXTS = ((Kind.RUNTIME,), (Kind.PYTHON,), (Kind.MEMORY,))
_QUANTITIES = frozenset({"bytes", "total_bytes"})


@dataclass(frozen=True, slots=True)
class _Family:
    """The events of one chunk that are of some kinds, and where in the chunk they stand."""

    where: Rows
    rows: list[Event]
    args: list[Args]


class Columns:
    """What has been read of a trace so far; all its texts together are bounded."""

    def __init__(self, most_characters: int) -> None:
        self.growing: dict[str, Growing] = {}
        self.names = Names(most_characters)
        self.texts = Texts(most_characters)
        self.threads = Threads()
        self.dropped = 0
        self.rows = 0
        self._kinds = Kinds()
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
        names, threads = self.names, self.threads
        count = len(rows)
        codes = map(names.__getitem__, map(attrgetter("name"), rows))
        chunk["name"] = np.fromiter(codes, np.int32, count)
        codes = map(threads.__getitem__, map(attrgetter("pid", "tid"), rows))
        chunk["thread"] = np.fromiter(codes, np.int32, count)
        chunk["kind"] = kinds = self._kinds_of(rows, chunk["name"])
        for wanted, lookups in _LOOKUPS.items():
            family = _family(rows, kinds, wanted)
            if not family.rows:
                continue
            for column, sources in lookups:
                convert = quantities if column in _QUANTITIES else self._identities
                _put(chunk, column, family.where, _first(family.args, sources, convert))
            self._put_place(family, wanted, chunk)
            if wanted not in _WITHOUT_TEXTS:
                self._put_texts(family, chunk)
        for column in ("correlation", "external"):
            # Zero is how profilers say that there is none; the first is 1.
            if column in chunk:
                chunk[column][chunk[column] == 0] = NONE

    def _kinds_of(self, rows: Sequence[Event], names: npt.NDArray[np.int32]) -> Values:
        codes = map(self._kinds.__getitem__, map(attrgetter("cat"), rows))
        kinds = np.fromiter(codes, np.uint8, len(rows))
        new = self.names.known[len(self._ranges) :]
        self._ranges.extend(is_annotation(str(name)) for name in new)
        ranges = np.frombuffer(self._ranges, dtype=np.bool_)
        kinds[ranges[names] & (kinds == Kind.CPU_OP)] = Kind.ANNOTATION
        return kinds

    def _put_place(self, family: _Family, kinds: tuple[Kind, ...], chunk: Chunk) -> None:
        """Stream and device of what has one."""
        if kinds == (Kind.MEMORY,):
            # Type 0 is the host; its memory is no device's.
            ids = [NONE if arg.device_type == 0 else arg.device_id for arg in family.args]
            _put(chunk, "device", family.where, self._identities(ids))
        if kinds not in (_DEVICE, (Kind.DEVICE_ANNOTATION,)):
            return
        # Where the arguments lack them, the row that the event is drawn in tells.
        pairs = [*zip(family.rows, family.args, strict=True)]
        streams = [row.tid if arg.stream == NONE else arg.stream for row, arg in pairs]
        streams = [NONE if stream == _NO_STREAM else _number(stream) for stream in streams]
        _put(chunk, "stream", family.where, self._identities(streams))
        devices = [row.pid if arg.device == NONE else arg.device for row, arg in pairs]
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


def _number(stream: Number) -> Number:
    return stream.removeprefix("stream ") if isinstance(stream, str) else stream


def _is_memory(event: Instant) -> bool:
    """Whether it is one; then it becomes an event like others, as those of 2021 lack a category."""
    event.cat, event.dur = MEMORY_CATEGORY, 0
    return event.name == MEMORY_NAME


def _family(rows: Sequence[Event], kinds: Values, wanted: tuple[Kind, ...]) -> _Family:
    where = np.flatnonzero(np.logical_or.reduce([kinds == kind for kind in wanted]))
    own = [rows[place] for place in where.tolist()]
    return _Family(where, own, [row.args or _NO_ARGS for row in own])


def _first(
    args: Sequence[Args], sources: tuple[str, ...], convert: Callable[[Sequence[Any]], Values]
) -> Values:
    """The first of the fields that is there, for each of the *args*."""
    values = convert([*map(attrgetter(sources[0]), args)])
    for source in sources[1:]:
        missing = values == NONE
        if missing.any():
            values[missing] = convert([*map(attrgetter(source), args)])[missing]
    return values


def _put(chunk: Chunk, column: str, where: Rows, values: Values) -> None:
    told = values != NONE
    if not told.any():
        return
    if column not in chunk:
        chunk[column] = np.full(len(chunk["start_ns"]), NONE, dtype=values.dtype)
    chunk[column][where[told]] = values[told]
