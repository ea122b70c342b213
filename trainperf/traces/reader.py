"""The reader of trace files: one pass, chunk by chunk, in bounded memory."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.core.errors import TraceError
from trainperf.core.places import AnyPath
from trainperf.traces.event_table import NONE, Column, EventTable, Kind, Losses, TraceInfo
from trainperf.traces.reading.columns import Columns, Growing
from trainperf.traces.reading.decode import FAULTS, EventDecoder
from trainperf.traces.reading.salvage import mend
from trainperf.traces.reading.source import ReadLimits, Source
from trainperf.traces.reading.splitter import ByteWindow, TraceDocument, Value
from trainperf.traces.reading.values import InexactError


KEYS = frozenset({"deviceProperties", "distributedInfo", "baseTimeNanoseconds"})
"""What is looked at; anything else a trace says is passed over."""

_MOST_CLOCK_NS = 2**62


def values_of(bodies: Mapping[str, bytes]) -> dict[str, object]:
    """The values as Python objects; one that is no JSON, even mended, is left out."""
    values: dict[str, object] = {}
    for key, body in bodies.items():
        for candidate in (body, mend(body, loose=False)):
            try:
                values[key] = msgspec.json.decode(candidate)
            except FAULTS:
                continue
            break
    return values


def clock_ns(values: Mapping[str, object]) -> int:
    """What the times of the events count from, in nanoseconds of the epoch; 0 if not said."""
    base = _integer(values.get("baseTimeNanoseconds"))
    return base if base is not None and 0 <= base < _MOST_CLOCK_NS else 0


def info_of(values: Mapping[str, object], table: EventTable) -> TraceInfo:
    """What the trace is of; *table* tells which device worked, and what was recorded."""
    job = _mapping(values.get("distributedInfo"))
    return TraceInfo(
        rank=_integer(job.get("rank")),
        world_size=_integer(job.get("world_size")),
        device=_device(values.get("deviceProperties"), table),
        backend=_text(job.get("backend")),
        nccl_version=_text(job.get("nccl_version")),
        process_groups=_groups(job.get("pg_config")),
        has_shapes=bool((table.shapes != NONE).any()),
        has_stacks=table.stack is not None or bool((table.kind == Kind.PYTHON).any()),
        has_memory=bool((table.kind == Kind.MEMORY).any()),
    )


def _device(properties: object, table: EventTable) -> str | None:
    """Name of the device that did most of the work."""
    entries = [_mapping(entry) for entry in properties] if isinstance(properties, list) else []
    names = {_integer(entry.get("id")): _text(entry.get("name")) for entry in entries}
    devices = table.device[table.kind == Kind.KERNEL]
    devices = devices[devices != NONE]
    if len(devices):
        numbers, counts = np.unique(devices, return_counts=True)
        named = names.get(int(numbers[counts.argmax()]))
        if named is not None:
            return named
    return next(iter(names.values())) if len(set(names.values())) == 1 else None


def _groups(entries: object) -> dict[str, tuple[int, ...]]:
    groups: dict[str, tuple[int, ...]] = {}
    for entry in entries if isinstance(entries, list) else []:
        about = _mapping(entry)
        ranks = about.get("ranks")
        if about.get("pg_name") is not None and isinstance(ranks, list):
            members = [_integer(rank) for rank in ranks]
            groups[str(about["pg_name"])] = tuple(m for m in members if m is not None)
    return groups


def _mapping(value: object) -> Mapping[object, object]:
    return value if isinstance(value, dict) else {}


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


_TIES = ("python_id", "external", "kind")
"""What says which of two events of the same time is the outer one, the last first."""

_DTYPES: dict[str, type[np.int32 | np.int64 | np.uint8]] = {
    "duration_ns": np.int64,
    "kind": np.uint8,
    **dict.fromkeys(("bytes", "elements", "total_bytes"), np.int64),
    **dict.fromkeys(
        ("name", "thread", "correlation", "external", "stream", "device", "shapes", "collective",
         "group", "dtype", "sequence", "python_id", "python_parent"),
        np.int32,
    ),
}  # fmt: skip
"""The columns of a table after `start_ns`, each with what it is where no event fills it."""


def read(path: AnyPath, *, limits: ReadLimits | None = None) -> EventTable:
    """Read one trace, `.json` or `.json.gz`; what is damaged is left out and counted in `losses`.

    Raises:
        TraceError: nothing of it can be used; says why in one line.
    """
    limits = limits or ReadLimits()
    try:
        try:
            return _read(path, limits, EventDecoder())
        except InexactError:
            # Found in the first chunk already: the times of one trace count from one zero.
            return _read(path, limits, EventDecoder(exact=True))
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None


def _read(path: AnyPath, limits: ReadLimits, decoder: EventDecoder) -> EventTable:
    source = Source(path, limits)
    document = TraceDocument(ByteWindow(source.blocks()), decoder)
    columns = Columns(limits.text_characters)
    bodies: dict[str, bytes] = {}
    dropped = repaired = 0
    for part in document.parts():
        if isinstance(part, Value):
            if part.key in KEYS:
                bodies[part.key] = part.body
            continue
        columns.add(part.events)
        if columns.rows > limits.events:
            raise TraceError(
                f"it holds more than {limits.events:,} events; "
                "record fewer steps, or raise the limit"
            )
        dropped += part.dropped
        repaired += part.repaired
    if not columns.rows:
        raise TraceError("it holds no events")
    losses = Losses(
        dropped_events=dropped + columns.dropped,
        truncated=document.truncated,
        repaired_texts=repaired,
        trailing=document.trailing or source.trailing,
    )
    values = values_of(bodies)
    table = _assemble(columns, losses=losses, clock_ns=clock_ns(values))
    return replace(table, info=info_of(values, table))


def _assemble(columns: Columns, *, losses: Losses, clock_ns: int) -> EventTable:
    """The table of all *columns*, which are used up; *clock_ns* is where their times count from.

    Each column is freed where it grew once its sorted copy is made: both together are the peak of
    memory.
    """
    growing, rows = columns.growing, columns.rows
    start_ns = growing.pop("start_ns").finished(rows)
    base_ns = int(start_ns.min())
    start_ns -= base_ns
    order = _order(start_ns, growing, rows)
    sorted_columns: dict[str, Any] = {"start_ns": start_ns[order]}
    del start_ns
    for name, dtype in _DTYPES.items():
        if name in growing:
            sorted_columns[name] = growing.pop(name).finished(rows)[order]
        else:  # one value seen many times
            sorted_columns[name] = np.broadcast_to(dtype(NONE), rows)
    has_stack = "stack" in growing
    return EventTable(
        **sorted_columns,
        stack=growing.pop("stack").finished(rows)[order] if has_stack else None,
        names=columns.names.texts(),
        texts=columns.texts.names.texts(),
        threads=list(columns.threads.pairs),
        base_ns=clock_ns + base_ns,
        losses=losses,
    )


def _order(start_ns: Column, growing: Mapping[str, Growing], rows: int) -> npt.NDArray[np.intp]:
    """The rows by start; where starts are equal, the outer event first.

    It does not depend on the order of the file, unless two events are the same in all.
    """
    order = np.argsort(start_ns, kind="stable")
    ordered = start_ns[order]
    same = np.zeros(rows + 1, dtype=np.bool_)
    np.equal(ordered[1:], ordered[:-1], out=same[1:-1])
    tied = np.flatnonzero(same[1:] | same[:-1])
    if len(tied):
        ties = order[tied]
        keys = [growing[name].finished(rows)[ties] for name in _TIES if name in growing]
        outer = np.lexsort((*keys, -growing["duration_ns"].finished(rows)[ties], start_ns[ties]))
        order[tied] = ties[outer]
    return order
