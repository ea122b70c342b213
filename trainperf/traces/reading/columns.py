"""How do events become columns?  Chunk by chunk, so that events live only for one chunk.

Only what a kind of event can have is looked up, and a column that nothing fills takes no memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from trainperf.traces.reading.decode import Args, Event
from trainperf.traces.reading.interning import Names, Texts, Threads
from trainperf.traces.reading.kinds import MEMORY_NAME, is_annotation, kind_of
from trainperf.traces.reading.numbers import identities, nanoseconds, quantities
from trainperf.traces.table import DEVICE_WORK, NONE, Kind


Values = npt.NDArray[Any]
Chunk = dict[str, Values]
"""Columns of one chunk by name; one that is missing is `NONE` throughout."""

_DEVICE = (*DEVICE_WORK, Kind.DEVICE_SYNC)
_OPERATORS = (Kind.CPU_OP, Kind.ANNOTATION)
_NO_ARGS = Args()
_NO_STREAM = 2**32 - 1
"""How CUDA says that a wait was for no stream in particular."""

_Lookup = tuple[str, str, Callable[[Sequence[Any]], Values]]
_LOOKUPS: tuple[tuple[tuple[Kind, ...], tuple[_Lookup, ...]], ...] = (
    ((Kind.RUNTIME, *_DEVICE), (("correlation", "correlation", identities),)),
    (
        (*_OPERATORS, Kind.RUNTIME, *_DEVICE, Kind.DEVICE_ANNOTATION),
        (("external", "external", identities), ("external", "external_2021", identities)),
    ),
    (_OPERATORS, (("sequence", "sequence", identities),)),
    ((Kind.MEMCPY, Kind.MEMSET, Kind.RUNTIME), (("bytes", "copied", quantities),)),
    (
        (Kind.MEMORY,),
        (("bytes", "allocated", quantities), ("total_bytes", "total", quantities)),
    ),
    (
        (Kind.PYTHON,),
        (
            ("python_id", "python_id", identities),
            ("python_parent", "python_parent", identities),
        ),
    ),
)
"""For these kinds: a column, the field it comes from, and how its values become numbers."""


@dataclass(slots=True, kw_only=True)
class Columns:
    """What has been read of a trace so far."""

    chunks: list[Chunk] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    texts: Texts = field(default_factory=Texts)
    threads: Threads = field(default_factory=Threads)
    dropped: int = 0
    rows: int = 0
    _ranges: list[bool] = field(default_factory=list)

    def add(self, events: Sequence[Event]) -> None:
        """Append the events that a table has rows for."""
        rows = [event for event in events if event.ph == "X" or _is_memory(event)]
        if not rows:
            return
        start_ns, started = nanoseconds([row.ts for row in rows])
        duration_ns, lasted = nanoseconds([row.dur if row.ph == "X" else 0 for row in rows])
        good = started & lasted & (duration_ns >= 0)
        if not good.all():
            self.dropped += int(len(rows) - good.sum())
            rows = [row for row, is_good in zip(rows, good.tolist(), strict=True) if is_good]
            start_ns, duration_ns = start_ns[good], duration_ns[good]
        if rows:
            chunk: Chunk = {"start_ns": start_ns, "duration_ns": duration_ns}
            self._describe(rows, chunk)
            self.chunks.append(chunk)
            self.rows += len(rows)

    def _describe(self, rows: Sequence[Event], chunk: Chunk) -> None:
        names, threads = self.names, self.threads
        chunk["name"] = np.array([names[row.name] for row in rows], dtype=np.int32)
        chunk["thread"] = np.array([threads[row.pid, row.tid] for row in rows], dtype=np.int32)
        chunk["kind"] = kinds = self._kinds(rows, chunk["name"])
        for wanted, lookups in _LOOKUPS:
            where, args = _of_kinds(rows, kinds, wanted)
            for column, source, convert in lookups:
                _put(chunk, column, where, convert([*map(attrgetter(source), args)]))
        for column in ("correlation", "external"):
            # Zero is how profilers say that there is none; the first is 1.
            if column in chunk:
                chunk[column][chunk[column] == 0] = NONE
        _put_device(rows, kinds, chunk)
        self._put_texts(rows, kinds, chunk)

    def _kinds(self, rows: Sequence[Event], names: npt.NDArray[np.int32]) -> Values:
        of = [kind_of(row.cat) if row.ph == "X" else Kind.MEMORY for row in rows]
        kinds = np.array(of, dtype=np.uint8)
        known = [*self.names][len(self._ranges) :]
        self._ranges.extend(is_annotation(str(name)) for name in known)
        ranges = np.array(self._ranges, dtype=np.bool_)
        kinds[(kinds == Kind.CPU_OP) & ranges[names]] = Kind.ANNOTATION
        return kinds

    def _put_texts(self, rows: Sequence[Event], kinds: Values, chunk: Chunk) -> None:
        texts = self.texts
        where, args = _of_kinds(rows, kinds, _OPERATORS)
        shapes = [bytes(arg.shapes) or bytes(arg.shapes_2020) for arg in args]
        codes = [texts.json(shape) if shape else NONE for shape in shapes]
        _put(chunk, "shapes", where, np.array(codes, dtype=np.int32))
        stacks = [texts.code(arg.stack) if arg.stack else NONE for arg in args]
        _put(chunk, "stack", where, np.array(stacks, dtype=np.int32))
        where, args = _of_kinds(rows, kinds, (*_OPERATORS, Kind.KERNEL, Kind.DEVICE_ANNOTATION))
        told = [place for place, arg in enumerate(args) if arg.collective is not None]
        if told:
            where, args = where[told], [args[place] for place in told]
            for column in ("collective", "group", "dtype"):
                given = [getattr(arg, column) for arg in args]
                codes = [NONE if text is None else texts.code(text) for text in given]
                _put(chunk, column, where, np.array(codes, dtype=np.int32))
            _put(chunk, "elements", where, quantities([arg.elements for arg in args]))


def _is_memory(event: Event) -> bool:
    return event.name == MEMORY_NAME and event.ph in {"i", "I"}


def _of_kinds(
    rows: Sequence[Event], kinds: Values, wanted: tuple[Kind, ...]
) -> tuple[npt.NDArray[np.intp], list[Args]]:
    where = np.flatnonzero(np.isin(kinds, wanted))
    return where, [rows[place].args or _NO_ARGS for place in where.tolist()]


def _put(chunk: Chunk, column: str, where: npt.NDArray[np.intp], values: Values) -> None:
    told = values != NONE
    if not told.any():
        return
    if column not in chunk:
        chunk[column] = np.full(len(chunk["start_ns"]), NONE, dtype=values.dtype)
    chunk[column][where[told]] = values[told]


def _put_device(rows: Sequence[Event], kinds: Values, chunk: Chunk) -> None:
    """Stream and device; where the arguments lack them, the row they are drawn in tells."""
    where = np.flatnonzero(np.isin(kinds, (*_DEVICE, Kind.DEVICE_ANNOTATION)))
    events = [(rows[place], rows[place].args or _NO_ARGS) for place in where.tolist()]
    streams = [row.tid if arg.stream == NONE else arg.stream for row, arg in events]
    streams = [text.removeprefix("stream ") if isinstance(text, str) else text for text in streams]
    _put(chunk, "stream", where, identities([NONE if s == _NO_STREAM else s for s in streams]))
    devices = [row.pid if arg.device == NONE else arg.device for row, arg in events]
    _put(chunk, "device", where, identities(devices))
    where, args = _of_kinds(rows, kinds, (Kind.MEMORY,))
    # Type 0 is the host; its memory is no device's.
    devices = [NONE if arg.device_type == 0 else arg.device_id for arg in args]
    _put(chunk, "device", where, identities(devices))
