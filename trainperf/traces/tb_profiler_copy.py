"""A copy of a trace, rewritten so that torch-tb-profiler 0.4.3 shows right figures of it.

It knows the categories of 2021, takes a kernel for communication only if its `External id` is that
of a collective it knows by name, and counts the host's time in the collective along.  The original
is never touched; times of the copy are as the plugin reads them, 64-bit floats of microseconds.
"""

import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, cast
from zlib import Z_BEST_SPEED

import msgspec

from trainperf.core.run_directory import drafted
from trainperf.traces.event_table import NONE, EventTable, Kind
from trainperf.traces.metrics.spans import by_name, launches_of, named, nest
from trainperf.traces.reader import read
from trainperf.traces.reading.decode import FAULTS, EventDecoder
from trainperf.traces.reading.salvage import Batch
from trainperf.traces.reading.source import ReadLimits
from trainperf.traces.reading.splitter import TraceDocument, Value
from trainperf.traces.reading.values import FIRST_FOLDED, kind_of


_KERNELS = ("nccl", "rccl", "msccl")
"""How the names of kernels of communication begin, whatever their case."""

Record = dict[str, object]
"""One event with everything that is in it."""

Collectives = Mapping[int, int]
"""Correlation to the `External id` of a collective."""

_EVENTS = "traceEvents"
_LIGHTNING = "pytorch-lightning"
"""Value of the key `Framework` that makes the plugin drop modules."""

_STEP = "ProfilerStep#"
_COLLECTIVE = re.compile(r"nccl:_?(?P<what>\w+)")
_DEVICE_COPY = "on the device: "

_COLLECTIVES = ("broadcast", "all_reduce", "all_gather", "reduce_scatter", "reduce")
"""The collectives of the plugin; the longer names first."""


def is_communication(name: str) -> bool:
    """Whether a kernel of this name moves data between ranks."""
    return name.lower().startswith(_KERNELS)


def normalise(trace: Path, copy: Path, *, limits: ReadLimits | None = None) -> None:
    """Write a copy of *trace* for torch-tb-profiler, gzipped, whole or not at all.

    Raises:
        TraceError: Nothing of it can be used.
        OSError: The copy cannot be written.
    """
    limits = limits or ReadLimits()
    collectives = _collectives(read(trace, limits=limits))
    parts = TraceDocument(trace, limits, EventDecoder()).parts()
    beside = [part for part in parts if isinstance(part, Value) and not _misleads(part)]
    copy.parent.mkdir(parents=True, exist_ok=True)
    with (
        drafted(copy) as draft,
        draft.open("wb") as file,
        gzip.GzipFile("", "wb", Z_BEST_SPEED, file, mtime=0) as out,
    ):
        _write(cast(IO[bytes], out), beside, _events(trace, limits, collectives))


def _collectives(table: EventTable) -> dict[int, int]:
    """The `External id` of the collective around the launch of each communication kernel.

    By the correlation of both.  Numbers that the table folds, as no profiler of today writes them,
    are left out.
    """
    kernels = table.rows(Kind.KERNEL)
    kernels = kernels[by_name(table, kernels, is_communication)]
    ranges = named(table, _COLLECTIVE, Kind.ANNOTATION, Kind.CPU_OP)
    forest = nest(table, ranges[table.external[ranges] != NONE])
    place = forest.around(table, launches_of(table, kernels))
    external = table.external[forest.rows[place[place != NONE]]]
    correlation = table.correlation[kernels[place != NONE]]
    pairs = zip(correlation.tolist(), external.tolist(), strict=True)
    return {key: number for key, number in pairs if max(key, number) < FIRST_FOLDED}


def _misleads(value: Value) -> bool:
    """Whether the plugin, which believes it, would be better without it."""
    try:
        content: object = msgspec.json.decode(value.body)
    except FAULTS:
        return True
    return value.key == "Framework" and content == _LIGHTNING


def _events(trace: Path, limits: ReadLimits, collectives: Collectives) -> Iterator[Record]:
    for part in TraceDocument(trace, limits, EventDecoder(whole=True)).parts():
        if isinstance(part, Batch):
            for event in cast(list[Record], part.events):
                yield from _rewritten(event, collectives)


def _write(out: IO[bytes], beside: Sequence[Value], events: Iterator[Record]) -> None:
    """The events come last: the plugin writes its counters before the last bracket of the file."""
    encode = msgspec.json.Encoder().encode
    bodies = {value.key: value.body for value in beside if value.key != _EVENTS}
    out.write(b"{" + b"".join(encode(key) + b":" + body + b",\n" for key, body in bodies.items()))
    out.write(b'"traceEvents":[')
    joint = b"\n"
    for event in events:
        out.write(joint + encode(event))
        joint = b",\n"
    out.write(b"\n]}\n")


def _rewritten(event: Record, collectives: Collectives) -> Iterator[Record]:
    """The event as the plugin understands it; nothing for one on which it would fail."""
    name, category = event.get("name"), event.get("cat")
    if not isinstance(name, str) or not _sound(event):
        return
    if event.get("ph") != "X" or not isinstance(category, str):
        yield event
        return
    kind = kind_of(category)
    collective = _COLLECTIVE.match(name)
    if kind in (Kind.RUNTIME, Kind.KERNEL):
        yield _pointed(event, kind, collectives)
    elif collective and kind in (Kind.ANNOTATION, Kind.CPU_OP):
        yield from _split(event, collective["what"])
    elif kind is Kind.DEVICE_ANNOTATION and name.startswith((_STEP, "nccl:")):
        # Else a step is there twice, and a collective next to its kernels.
        yield {**event, "name": f"{_DEVICE_COPY}{name}"}
    elif kind is Kind.ANNOTATION and not name.startswith((_STEP, "gloo:")):
        yield {**event, "cat": "cpu_op"}
    else:
        yield event


def _sound(event: Record) -> bool:
    """Whether the plugin survives it: one bad event costs it the whole file."""
    if event.get("ph") != "X":
        return True
    times = (event.get("ts"), event.get("dur"))
    numbers = all(isinstance(time, int | float) for time in times)
    if not numbers or not isinstance(event.get("cat"), str):
        return False
    host = kind_of(str(event["cat"])) in (Kind.CPU_OP, Kind.ANNOTATION)
    return not host or str(event.get("tid")).lstrip("-").isdigit()


def _pointed(event: Record, kind: Kind, collectives: Collectives) -> Record:
    """A launch or a kernel with the `External id` of the collective behind it, if there is one."""
    changed = {**event, "cat": "runtime"} if kind is Kind.RUNTIME else event
    args = _args(event)
    correlation = args.get("correlation")
    external = collectives.get(correlation) if isinstance(correlation, int) else None
    if external is None or (kind is Kind.KERNEL and not is_communication(str(event["name"]))):
        return changed
    return {**changed, "args": {**_unnumbered(args), "External id": external}}


def _args(event: Record) -> Record:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _unnumbered(args: Record) -> Record:
    return {key: value for key, value in args.items() if key.lower() != "external id"}


def _split(event: Record, what: str) -> Iterator[Record]:
    """A collective's time on the host as an operator, and a mark without length to point at.

    The plugin knows five collectives; any other stands under the one that moves data alike.
    """
    rest = _unnumbered(_args(event))
    what = what.replace("allreduce", "all_reduce")
    name = next((name for name in _COLLECTIVES if name in what), "all_gather")
    yield {**event, "cat": "cpu_op", "name": f"{event['name']} (host)", "args": rest}
    yield {**event, "cat": "user_annotation", "name": f"nccl:{name}", "dur": 0}
