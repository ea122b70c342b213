"""Event tables made by hand, and one loader that shares nothing with the package's own."""

import gzip
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainperf.traces.event_table import NONE, EventTable, Kind, TraceInfo


TRACES = Path(os.environ.get("TRAINPERF_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
"""Real traces of other people's jobs; too large for the project's own tree."""

MS = 1_000_000
US = 1_000

needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no real traces at {TRACES}")

_KINDS = {
    "cpu_op": Kind.CPU_OP,
    "operator": Kind.CPU_OP,
    "user_annotation": Kind.ANNOTATION,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "runtime": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "cuda_sync": Kind.DEVICE_SYNC,
    "python_function": Kind.PYTHON,
    "cpu_instant_event": Kind.MEMORY,
}

_NUMBERS = {
    "correlation": "correlation",
    "external": "External id",
    "stream": "stream",
    "device": "device",
    "elements": "In msg nelems",
    "sequence": "Sequence number",
    "python_id": "Python id",
    "python_parent": "Python parent id",
    "total_bytes": "Total Allocated",
    "reserved_bytes": "Total Reserved",
}

_RATIOS = {"blocks_per_sm": "blocks per SM", "occupancy_percent": "est. achieved occupancy %"}

_TEXTS = {
    "shapes": "Input Dims",
    "collective": "Collective name",
    "group": "Process Group Name",
    "dtype": "dtype",
}


class Codes:
    """Texts as numbers, in order of appearance."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def __call__(self, text: Any) -> int:
        """The number of a text."""
        return self.known.setdefault(text, len(self.known))


def event(name: str, start_ns: int, duration_ns: int, **given: Any) -> dict[str, Any]:
    """One event on the main thread of the host, an operator unless another kind is given."""
    usual = {"kind": Kind.CPU_OP, "thread": ("1", "1")}
    return {**usual, "name": name, "start_ns": start_ns, "duration_ns": duration_ns, **given}


class Launches:
    """Makes calls and the device events they launch, with correlations nobody else has."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(
        self, name: str, at_ns: int, start_ns: int, duration_ns: int, **given: Any
    ) -> list[dict[str, Any]]:
        """A call at *at_ns* on the main thread (or `on`), and what it made the device do."""
        self.number += 1
        kind = given.pop("kind", Kind.KERNEL)
        stream = given.pop("stream", 7)
        call = event(
            given.pop("call", "cudaLaunchKernel"),
            at_ns,
            US,
            kind=Kind.RUNTIME,
            thread=given.pop("on", ("1", "1")),
            correlation=self.number,
        )
        work = event(
            name,
            start_ns,
            duration_ns,
            kind=kind,
            thread=("0", str(stream)),
            correlation=self.number,
            stream=stream,
            device=0,
            **given,
        )
        return [call, work]


def launched(*works: tuple[Any, ...], first: int = 1) -> list[dict[str, Any]]:
    """Calls and what they launch, in order: each a name, three times, and more by name."""
    launches = Launches()
    launches.number = first - 1
    events = []
    for work in works:
        *args, given = work if isinstance(work[-1], dict) else (*work, {})
        events += launches(*args, **given)
    return events


def mark(name: str, start_ns: int, duration_ns: int, **given: Any) -> dict[str, Any]:
    """A range on the host."""
    return event(name, start_ns, duration_ns, kind=Kind.ANNOTATION, **given)


def step_mark(number: int, start_ns: int, duration_ns: int) -> dict[str, Any]:
    """The mark of a step."""
    return mark(f"ProfilerStep#{number}", start_ns, duration_ns)


def table_of(events: list[dict[str, Any]], info: TraceInfo | None = None) -> EventTable:
    """The table of some events, in the order a reader puts them."""
    rows = sorted(events, key=lambda e: (e["start_ns"], -e["duration_ns"]))
    names, texts, threads = Codes(), Codes(), Codes()
    columns: dict[str, Any] = {
        "start_ns": _column(rows, "start_ns"),
        "duration_ns": _column(rows, "duration_ns"),
        "kind": np.array([int(row["kind"]) for row in rows], np.uint8),
        "name": np.array([names(row["name"]) for row in rows], np.int32),
        "thread": np.array([threads(row["thread"]) for row in rows], np.int32),
        "bytes": _column(rows, "bytes"),
    }
    for column in _NUMBERS:
        columns[column] = _column(rows, column)
    for column in _RATIOS:
        columns[column] = np.array([row.get(column, NONE) for row in rows], np.float16)
    for column in _TEXTS:
        codes = [texts(row[column]) if row.get(column) else NONE for row in rows]
        columns[column] = np.array(codes, np.int32)
    stacks = [texts(row["stack"]) if row.get("stack") else NONE for row in rows]
    return EventTable(
        **columns,
        stack=np.array(stacks, np.int32) if any(code != NONE for code in stacks) else None,
        names=list(names.known),
        texts=list(texts.known),
        threads=list(threads.known),
        info=info or TraceInfo(),
    )


def _column(rows: list[dict[str, Any]], name: str) -> Any:
    return np.array([row.get(name, NONE) for row in rows], np.int64)


def write_trace(path: Path, events: list[dict[str, Any]], **about: Any) -> Path:
    """A file as Kineto writes it; *about* goes into `distributedInfo`."""
    document = {
        "distributedInfo": about,
        "deviceProperties": [{"id": 0, "name": "Planted GPU"}],
        "traceEvents": [_written(one) for one in events],
    }
    text = json.dumps(document).encode()
    path.write_bytes(gzip.compress(text) if path.name.endswith(".gz") else text)
    return path


def _written(one: dict[str, Any]) -> dict[str, Any]:
    named = {**_NUMBERS, **_RATIOS, **_TEXTS, "bytes": "bytes"}
    kind = Kind(one["kind"])
    pid, tid = one["thread"]
    return {
        "ph": "X",
        "cat": next(name for name, known in _KINDS.items() if known is kind),
        "name": one["name"],
        "pid": pid,
        "tid": tid,
        "ts": one["start_ns"] / 1_000,
        "dur": one["duration_ns"] / 1_000,
        "args": {key: one[name] for name, key in named.items() if one.get(name) is not None},
    }


def load(path: Path) -> EventTable:
    """A whole trace through the standard library: slow, and independent of the reader."""
    with gzip.open(path) as file:
        document = json.load(file, parse_float=Decimal)
    root = {"traceEvents": document} if isinstance(document, list) else document
    found = [_event(entry) for entry in root["traceEvents"] if _wanted(entry)]
    base = min(row["start_ns"] for row in found)
    for row in found:
        row["start_ns"] -= base
    about = root.get("distributedInfo") or {}
    devices = root.get("deviceProperties") or []
    info = TraceInfo(
        rank=about.get("rank"),
        world_size=about.get("world_size"),
        device=devices[0]["name"] if devices else None,
        process_groups={
            group["pg_name"]: tuple(group["ranks"])
            for group in about.get("pg_config", [])
            if "ranks" in group
        },
    )
    return table_of(found, info)


def _wanted(entry: dict[str, Any]) -> bool:
    if entry.get("ph") == "i":
        return str(entry.get("cat", "")) == "cpu_instant_event"
    return entry.get("ph") == "X" and entry.get("cat") != "Trace"


def _event(entry: dict[str, Any]) -> dict[str, Any]:
    args = entry.get("args", {})
    start, end = Decimal(entry["ts"]), Decimal(entry["ts"]) + Decimal(entry.get("dur", 0))
    row = event(
        entry["name"],
        int(start * 1000),
        int(end * 1000) - int(start * 1000),
        kind=_KINDS.get(str(entry["cat"]).lower(), Kind.OTHER),
        thread=(str(entry["pid"]), str(entry["tid"])),
    )
    args = {key: value for key, value in args.items() if value is not None}
    args = {"External id": args.get("external id", NONE), **args}
    row |= {column: int(args.get(key, NONE)) for column, key in _NUMBERS.items()}
    row |= {column: float(args.get(key, NONE)) for column, key in _RATIOS.items()}
    row |= {column: str(args[key]) for column, key in _TEXTS.items() if args.get(key)}
    row["bytes"] = int(args.get("bytes", args.get("Bytes", NONE)))
    return row
