"""The reader of trace files: one pass, chunk by chunk, in bounded memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.core.arrays import Integers
from trainperf.core.errors import TraceError
from trainperf.core.paths import AnyPath
from trainperf.traces.event_table import NONE, EventTable, Kind, Losses, TraceInfo
from trainperf.traces.reading.columns import Columns
from trainperf.traces.reading.decode import FAULTS, EventDecoder
from trainperf.traces.reading.source import ReadLimits
from trainperf.traces.reading.splitter import KEYS, TraceDocument, Value
from trainperf.traces.reading.values import MOST_NS, InexactError


class _Group(msgspec.Struct):
    """A process group."""

    pg_name: str | int | None = None
    ranks: list[int] | None = None


class _Job(msgspec.Struct):
    """What `distributedInfo` says."""

    rank: int | None = None
    world_size: int | None = None
    pg_config: msgspec.Raw = msgspec.Raw()


class _Device(msgspec.Struct):
    """One of `deviceProperties`."""

    id: int | None = None
    name: str | None = None


Typed = TypeVar("Typed")


def _typed(body: bytes | msgspec.Raw, kind: type[Typed]) -> Typed | None:
    """A value that stands beside the events; `None` where the file says something else."""
    try:
        return msgspec.json.decode(body, type=kind)
    except FAULTS:
        return None


def _info(bodies: Mapping[str, bytes], table: EventTable) -> TraceInfo:
    """What the trace is of; *table* tells which device worked."""
    job = _typed(bodies.get("distributedInfo", b""), _Job) or _Job()
    devices = _typed(bodies.get("deviceProperties", b""), list[_Device]) or []
    groups = _typed(job.pg_config, list[_Group]) or []
    return TraceInfo(
        rank=job.rank,
        world_size=job.world_size,
        device=_busiest(devices, table),
        process_groups={
            str(group.pg_name): tuple(group.ranks)
            for group in groups
            if group.pg_name is not None and group.ranks is not None
        },
    )


def _busiest(devices: Sequence[_Device], table: EventTable) -> str | None:
    """Name of the device that did most of the work."""
    names = {device.id: device.name for device in devices}
    numbers = table.device[(table.kind == Kind.KERNEL) & (table.device != NONE)]
    worked = names.get(int(np.bincount(numbers).argmax())) if len(numbers) else None
    return devices[0].name if worked is None and len({*names.values()}) == 1 else worked


_TIES = ("python_id", "external", "kind")
"""What says which of two events of the same time is the outer one, the last first."""

_DTYPES: dict[str, type[np.int32 | np.int64 | np.uint8 | np.float16]] = {
    "duration_ns": np.int64,
    "kind": np.uint8,
    **dict.fromkeys(("bytes", "elements", "total_bytes", "reserved_bytes"), np.int64),
    **dict.fromkeys(("blocks_per_sm", "occupancy_percent"), np.float16),
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
    document = TraceDocument(path, limits, decoder)
    columns = Columns(limits.text_characters)
    bodies: dict[str, bytes] = {}
    for part in document.parts():
        if isinstance(part, Value):
            if part.key in KEYS:
                bodies[part.key] = part.body
            continue
        columns.add(part)
        if columns.rows > limits.events:
            raise TraceError(
                f"it holds more than {limits.events:,} events; "
                "record fewer steps, or raise the limit"
            )
    if not columns.rows:
        raise TraceError("it holds no events")
    losses = Losses(
        dropped_events=document.dropped + columns.dropped,
        truncated=document.truncated,
        repaired_texts=document.repaired,
        trailing=document.trailing,
    )
    clock_ns = _typed(bodies.get("baseTimeNanoseconds", b""), int) or 0
    is_believed = 0 <= clock_ns < MOST_NS
    table = _assemble(columns, losses=losses, clock_ns=clock_ns if is_believed else 0)
    return replace(table, info=_info(bodies, table))


def _assemble(columns: Columns, *, losses: Losses, clock_ns: int) -> EventTable:
    """The table of all *columns*, which are used up; *clock_ns* is where their times count from.

    Each column is freed where it grew once its sorted copy is made: both together are the peak of
    memory.
    """
    start_ns = columns.pop("start_ns")
    base_ns = int(start_ns.min())
    start_ns -= base_ns
    order = _order(start_ns, columns)
    sorted_columns: dict[str, Any] = {"start_ns": start_ns[order]}
    del start_ns
    for name, dtype in _DTYPES.items():
        sorted_columns[name] = (
            columns.pop(name)[order]
            if name in columns
            else np.broadcast_to(dtype(NONE), columns.rows)  # one value seen many times
        )
    return EventTable(
        **sorted_columns,
        stack=columns.pop("stack")[order] if "stack" in columns else None,
        names=columns.names.texts(),
        texts=columns.texts.texts(),
        threads=list(columns.threads),
        base_ns=clock_ns + base_ns,
        losses=losses,
    )


def _order(start_ns: Integers, columns: Columns) -> npt.NDArray[np.intp]:
    """The rows by start; where starts are equal, the outer event first.

    It does not depend on the order of the file, unless two events are the same in all.
    """
    order = np.argsort(start_ns, kind="stable")
    ordered = start_ns[order]
    same = np.zeros(len(order) + 1, dtype=np.bool_)
    np.equal(ordered[1:], ordered[:-1], out=same[1:-1])
    tied = np.flatnonzero(same[1:] | same[:-1])
    if len(tied):
        ties = order[tied]
        keys = [columns.column(name)[ties] for name in _TIES if name in columns]
        outer = np.lexsort((*keys, -columns.column("duration_ns")[ties], start_ns[ties]))
        order[tied] = ties[outer]
    return order
