"""Metadata of a trace beside its events, where it is as expected."""

from collections.abc import Mapping

import msgspec
import numpy as np

from trainperf.traces.event_table import NONE, EventTable, Kind, TraceInfo
from trainperf.traces.reading.decode import FAULTS
from trainperf.traces.reading.salvage import mend


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
