"""How do events become columns?  Chunk by chunk, so that events live only for one chunk.

Only what a kind of event can have is looked up, and a column that nothing fills takes no memory.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from trainperf.traces.reading.decode import NO_SHAPES, Args, Decoded, Event, Instant
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
_COMMUNICATION = (*_OPERATORS, Kind.KERNEL, Kind.DEVICE_ANNOTATION)

_Lookup = tuple[str, tuple[str, ...]]
_EXTERNAL: _Lookup = ("external", ("external", "external_2021"))
_LOOKUPS: dict[tuple[Kind, ...], tuple[_Lookup, ...]] = {
    _OPERATORS: (_EXTERNAL, ("sequence", ("sequence",))),
    (Kind.RUNTIME, *_DEVICE): (
        ("correlation", ("correlation",)),
        _EXTERNAL,
        ("bytes", ("copied",)),
    ),
    (Kind.DEVICE_ANNOTATION,): (_EXTERNAL,),
    (Kind.PYTHON,): (
        ("python_id", ("python_id",)),
        ("python_parent", ("python_parent",)),
    ),
    (Kind.MEMORY,): (("bytes", ("allocated",)), ("total_bytes", ("total",))),
}
"""For these kinds: a column, and the fields it comes from, the first that is there."""

_QUANTITIES = frozenset({"bytes", "total_bytes"})


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
        self._ranges: list[bool] = []

    def add(self, events: Sequence[Decoded]) -> None:
        """Append the events that a table has rows for.

        Raises:
            InexactError: floats have lost digits of a time; decode with all of them.
        """
        rows = [event for event in events if type(event) is Event]
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
        args = [row.args or _NO_ARGS for row in rows]
        for wanted, lookups in _LOOKUPS.items():
            where, told = _of_kinds(args, kinds, wanted)
            for column, sources in lookups:
                convert = quantities if column in _QUANTITIES else self._identities
                _put(chunk, column, where, _first(told, sources, convert))
        for column in ("correlation", "external"):
            # Zero is how profilers say that there is none; the first is 1.
            if column in chunk:
                chunk[column][chunk[column] == 0] = NONE
        self._put_device(rows, kinds, chunk)
        self._put_memory_device(args, kinds, chunk)
        self._put_operators(args, kinds, chunk)
        self._put_collectives(args, kinds, chunk)

    def _kinds_of(self, rows: Sequence[Event], names: npt.NDArray[np.int32]) -> Values:
        codes = map(self._kinds.__getitem__, map(attrgetter("cat"), rows))
        kinds = np.fromiter(codes, np.uint8, len(rows))
        if len(self._ranges) < len(self.names):
            new = [*self.names][len(self._ranges) :]
            self._ranges.extend(is_annotation(str(name)) for name in new)
        kinds[np.array(self._ranges, dtype=np.bool_)[names] & (kinds == Kind.CPU_OP)] = (
            Kind.ANNOTATION
        )
        return kinds

    def _put_device(self, rows: Sequence[Event], kinds: Values, chunk: Chunk) -> None:
        """Stream and device; where the arguments lack them, the row they are drawn in tells."""
        wanted = (*_DEVICE, Kind.DEVICE_ANNOTATION)
        where = np.flatnonzero(np.logical_or.reduce([kinds == kind for kind in wanted]))
        pairs = [(rows[place], rows[place].args or _NO_ARGS) for place in where.tolist()]
        streams = [row.tid if arg.stream == NONE else arg.stream for row, arg in pairs]
        streams = [s.removeprefix("stream ") if isinstance(s, str) else s for s in streams]
        _put(
            chunk,
            "stream",
            where,
            self._identities([NONE if s == _NO_STREAM else s for s in streams]),
        )
        devices = [row.pid if arg.device == NONE else arg.device for row, arg in pairs]
        _put(chunk, "device", where, self._identities(devices))

    def _put_memory_device(self, args: Sequence[Args], kinds: Values, chunk: Chunk) -> None:
        where, told = _of_kinds(args, kinds, (Kind.MEMORY,))
        # Type 0 is the host; its memory is no device's.
        devices = [NONE if arg.device_type == 0 else arg.device_id for arg in told]
        _put(chunk, "device", where, self._identities(devices))

    def _put_operators(self, args: Sequence[Args], kinds: Values, chunk: Chunk) -> None:
        texts = self.texts
        where, told = _of_kinds(args, kinds, _OPERATORS)
        shapes = [arg.shapes if arg.shapes_2020 is NO_SHAPES else arg.shapes_2020 for arg in told]
        codes = [NONE if shape is NO_SHAPES else texts.json(shape) for shape in shapes]
        _put(chunk, "shapes", where, np.array(codes, dtype=np.int32))
        codes = [texts.code(arg.stack) if arg.stack else NONE for arg in told]
        _put(chunk, "stack", where, np.array(codes, dtype=np.int32))

    def _put_collectives(self, args: Sequence[Args], kinds: Values, chunk: Chunk) -> None:
        texts = self.texts
        where, told = _of_kinds(args, kinds, _COMMUNICATION)
        places = [place for place, arg in enumerate(told) if arg.collective is not None]
        where, told = where[places], [told[place] for place in places]
        for column in ("collective", "group", "dtype"):
            given = map(attrgetter(column), told)
            codes = [NONE if text is None else texts.code(text) for text in given]
            _put(chunk, column, where, np.array(codes, dtype=np.int32))
        _put(chunk, "elements", where, quantities([arg.elements for arg in told]))


def _is_memory(event: Instant) -> bool:
    """Whether it is one; then it becomes an event like others, as those of 2021 lack a category."""
    event.cat, event.dur = MEMORY_CATEGORY, 0
    return event.name == MEMORY_NAME


def _of_kinds(
    args: Sequence[Args], kinds: Values, wanted: tuple[Kind, ...]
) -> tuple[Rows, list[Args]]:
    where = np.flatnonzero(np.logical_or.reduce([kinds == kind for kind in wanted]))
    return where, [args[place] for place in where.tolist()]


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
