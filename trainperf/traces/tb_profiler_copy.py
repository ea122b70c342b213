"""A copy of a trace, rewritten so that torch-tb-profiler 0.4.3 shows right figures of it.

It knows the categories of 2021, takes a kernel for communication only if its `External id` is that
of a collective it knows by name, and counts the host's time in the collective along.  The original
is never touched; times of the copy are as the plugin reads them, 64-bit floats of microseconds.
"""

import gzip
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, cast

import msgspec

from trainperf.core.errors import TraceError
from trainperf.core.run_directory import drafted
from trainperf.traces.event_table import Kind
from trainperf.traces.reading.decode import FAULTS, EventDecoder
from trainperf.traces.reading.salvage import Batch
from trainperf.traces.reading.source import ReadLimits
from trainperf.traces.reading.splitter import TraceDocument, Value
from trainperf.traces.reading.values import kind_of


_KERNELS = ("nccl", "rccl", "msccl")
"""How the names of kernels of communication begin, whatever their case."""

_LARGEST_NUMBER = 2**63

Event = Mapping[str, object]
"""One event as the file has it."""

Record = dict[str, object]
"""One event with everything that is in it."""

_GZIP_LEVEL = 3
_EVENTS = "traceEvents"
_LIGHTNING = "pytorch-lightning"
"""Value of the key `Framework` that makes the plugin drop modules."""

_STEP = "ProfilerStep#"
_COLLECTIVE = re.compile(r"nccl:_?(?P<what>\w+)")
_DEVICE_COPY = "on the device: "

_COLLECTIVES = ("broadcast", "all_reduce", "all_gather", "reduce_scatter", "reduce")
"""The collectives of the plugin; the longer names first."""


class CollectiveLaunches:
    """Collects events in any order; after `link` knows the `External id` of each collective.

    Holds three numbers per launch: a trace of a gigabyte has some millions.
    """

    def __init__(self) -> None:
        self._threads: dict[tuple[str, str], int] = {}
        self._spans: dict[int, list[tuple[float, float, int]]] = {}
        self._kernels: set[object] = set()
        self._correlations = array("q")
        self._callers = array("i")
        self._times = array("d")
        self._external: dict[int, int] = {}

    def look(self, event: Event) -> None:
        """Take the next event."""
        args, category, name = event.get("args"), event.get("cat"), event.get("name")
        if event.get("ph") != "X" or not isinstance(args, dict) or not isinstance(category, str):
            return
        kind = kind_of(category)
        if kind is Kind.RUNTIME:
            self._call(event, args.get("correlation"))
        elif kind is Kind.KERNEL and is_communication(str(name)):
            self._kernels.add(args.get("correlation"))
        elif kind in (Kind.ANNOTATION, Kind.CPU_OP) and str(name).startswith("nccl:"):
            self._span(event, args.get("External id", args.get("external id")))

    def link(self) -> None:
        """All events have been seen: find the collective around each launch."""
        for spans in self._spans.values():
            spans.sort(key=lambda span: span[0])
        starts = {thread: [span[0] for span in spans] for thread, spans in self._spans.items()}
        for correlation, thread, time in zip(
            self._correlations, self._callers, self._times, strict=True
        ):
            if correlation not in self._kernels or thread not in starts:
                continue
            place = bisect_right(starts[thread], time) - 1
            # The innermost one began last; one that has ended may lie inside one that goes on.
            while place >= 0 and self._spans[thread][place][1] < time:
                place -= 1
            if place >= 0:
                self._external[correlation] = self._spans[thread][place][2]

    def external(self, correlation: object, name: object, kind: Kind) -> int | None:
        """`External id` of the collective behind a kernel or its launch; `None` without one."""
        if kind is Kind.KERNEL and not is_communication(str(name)):
            return None
        return self._external.get(correlation) if isinstance(correlation, int) else None

    def _call(self, event: Event, correlation: object) -> None:
        ts = event.get("ts")
        if (
            isinstance(correlation, int)
            and 0 < correlation < _LARGEST_NUMBER
            and isinstance(ts, int | float)
        ):
            self._correlations.append(correlation)
            self._callers.append(self._thread(event))
            self._times.append(ts)

    def _span(self, event: Event, external: object) -> None:
        ts, dur = event.get("ts"), event.get("dur")
        if not isinstance(ts, int | float) or not isinstance(dur, int | float):
            return
        if isinstance(external, int):
            self._spans.setdefault(self._thread(event), []).append((ts, ts + dur, external))

    def _thread(self, event: Event) -> int:
        thread = (str(event.get("pid")), str(event.get("tid")))
        return self._threads.setdefault(thread, len(self._threads))


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
    head, collectives = _first_pass(trace, limits)
    copy.parent.mkdir(parents=True, exist_ok=True)
    with (
        drafted(copy) as draft,
        draft.open("wb") as file,
        gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as out,
    ):
        _write(cast(IO[bytes], out), head, _events(trace, limits, collectives))


def _first_pass(trace: Path, limits: ReadLimits) -> tuple[dict[str, bytes], CollectiveLaunches]:
    """What stands next to the events, and which collective launched which kernel."""
    head: dict[str, bytes] = {}
    collectives = CollectiveLaunches()
    has_events = False
    for part in _parts(trace, limits):
        if isinstance(part, Value):
            if not _misleads(part):
                head[part.key] = part.body
            continue
        has_events = True
        collectives.look(part)
    if not has_events:
        raise TraceError(f"{trace}: holds no events")
    collectives.link()
    return head, collectives


def _misleads(value: Value) -> bool:
    """Whether the plugin, which believes it, would be better without it."""
    try:
        content: object = msgspec.json.decode(value.body)
    except FAULTS:
        return True
    return value.key == "Framework" and content == _LIGHTNING


def _events(trace: Path, limits: ReadLimits, collectives: CollectiveLaunches) -> Iterator[Record]:
    for part in _parts(trace, limits):
        if not isinstance(part, Value):
            yield from _rewritten(part, collectives)


def _parts(trace: Path, limits: ReadLimits) -> Iterator[Value | Record]:
    for part in TraceDocument(trace, limits, EventDecoder(whole=True)).parts():
        if isinstance(part, Batch):
            yield from cast(list[Record], part.events)
        else:
            yield part


def _write(out: IO[bytes], head: dict[str, bytes], events: Iterator[Record]) -> None:
    """The events come last: the plugin writes its counters before the last bracket of the file."""
    encode = msgspec.json.Encoder().encode
    beside = [encode(key) + b":" + body for key, body in head.items() if key != _EVENTS]
    out.write(b"{" + b"".join(entry + b",\n" for entry in beside) + b'"traceEvents":[')
    joint = b"\n"
    for event in events:
        out.write(joint + encode(event))
        joint = b",\n"
    out.write(b"\n]}\n")


def _rewritten(event: Record, collectives: CollectiveLaunches) -> Iterator[Record]:
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


def _pointed(event: Record, kind: Kind, collectives: CollectiveLaunches) -> Record:
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    changed = {**event, "cat": "runtime"} if kind is Kind.RUNTIME else event
    external = collectives.external(args.get("correlation"), event.get("name"), kind)
    if external is None:
        return changed
    rest = {key: value for key, value in args.items() if key.lower() != "external id"}
    return {**changed, "args": {**rest, "External id": external}}


def _split(event: Record, what: str) -> Iterator[Record]:
    """A collective's time on the host as an operator, and a mark without length to point at.

    The plugin knows five collectives; any other stands under the one that moves data alike.
    """
    args = event.get("args")
    args = dict(args) if isinstance(args, dict) else {}
    rest = {key: value for key, value in args.items() if key.lower() != "external id"}
    what = what.replace("allreduce", "all_reduce")
    name = next((name for name in _COLLECTIVES if name in what), "all_gather")
    yield {**event, "cat": "cpu_op", "name": f"{event['name']} (host)", "args": rest}
    yield {**event, "cat": "user_annotation", "name": f"nccl:{name}", "dur": 0}
