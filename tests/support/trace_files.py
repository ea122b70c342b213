"""Small trace files made by hand, sound ones and damaged ones."""

import json
from pathlib import Path
from typing import Any

from trainperf.traces.event_table import EventTable
from trainperf.traces.reader import read


Event = dict[str, Any]

BESIDE = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "Device A"}, {"id": 1, "name": "Device B"}],
    "distributedInfo": {
        "backend": "nccl",
        "rank": 3,
        "world_size": 8,
        "nccl_version": "2.17.1",
        "pg_config": [{"pg_name": "0", "ranks": [0, 1, 2]}],
    },
    "baseTimeNanoseconds": 1_700_000_000_000_000_000,
}
"""What stands beside the events of a trace."""


def operator(name: str, ts: float, dur: float = 5.0, **args: Any) -> Event:
    """An operator on the host, times in microseconds."""
    given = {"External id": 7, **args}
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": 10, "tid": 11,
        "ts": ts, "dur": dur, "args": given,
    }  # fmt: skip


def kernel(name: str, ts: float, dur: float = 5.0, **args: Any) -> Event:
    """A kernel on stream 7 of device 1."""
    given = {"External id": 7, "device": 1, "stream": 7, "correlation": 42, **args}
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 1, "tid": 7,
        "ts": ts, "dur": dur, "args": given,
    }  # fmt: skip


def flow(ts: float) -> Event:
    """An arrow from a launch to its kernel: no row of a table."""
    return {"ph": "s", "id": 1, "pid": 10, "tid": 11, "ts": ts, "cat": "ac2g", "name": "ac2g"}


def operators(count: int) -> list[Event]:
    """Operators `op0`, `op1`, …, a tenth of a millisecond apart."""
    return [operator(f"op{number}", 1000.5 + 100 * number) for number in range(count)]


def text(events: list[Any], **layout: Any) -> str:
    """A whole trace of these events, with *layout* as `json.dumps` takes it."""
    return json.dumps({**BESIDE, "traceEvents": events, "traceName": "t.json"}, **layout)


def compact(events: list[Any]) -> str:
    """The same on one line without blanks."""
    return text(events, separators=(",", ":"))


def read_bytes(folder: Path, body: bytes, name: str = "trace.json") -> EventTable:
    """What the reader makes of a file with these bytes."""
    path = folder / name
    path.write_bytes(body)
    return read(path)


def read_text(folder: Path, body: str) -> EventTable:
    """What the reader makes of a file with this text."""
    return read_bytes(folder, body.encode())


def read_events(folder: Path, events: list[Any]) -> EventTable:
    """What the reader makes of a trace of these events."""
    return read_text(folder, compact(events))


def labels(table: EventTable) -> list[str]:
    """Names of the events, in the order of the table."""
    return [table.label(row) for row in range(len(table))]
