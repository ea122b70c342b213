"""Traces of a job of many ranks, made from one real trace by moving its events in time.

The trace is repeated until it is as large as wanted, and once more for every rank.  In each step a
rank comes late by a known time: its host idles so long before the step's first operator, its device
before the first kernel.  The first all-reduce of the step ends on all ranks when the last one has
come, so on the others it takes longer by what they came earlier, and all that follows is later by
as much.  Times only move apart: order and causes within a rank stay as they were.

Ranks share a few bodies, which differ in their lateness; a rank's own is the head of its file.
Gzip files may be joined, so a body is packed once.
"""

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scripts.bench.synthetic_traces import FRESH, Original, marked, original


Whole = npt.NDArray[np.int64]

_MARK = re.compile(r'"@@([tdin])(\d+)@@"|@@(s)(\d+)@@')
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"})
_STEP = "ProfilerStep#"
_LATER_STEP = 1000
"""Added to the number of a step in each copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """Traces of so many ranks, of which one comes late in every step."""

    ranks: int
    packed_bytes: int
    """Of each file, about: whole copies of the real trace."""
    late: int | None = None
    delay_ms: float = 5.0
    jitter_ms: float = 0.05
    """Others are late by up to so much."""
    bodies: int = 4
    """Different ones; the late rank has its own."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """Moments of one step in the real trace, nanoseconds from its first event."""

    begin: int
    end: int
    """Both of its mark on the host."""
    first_kernel: int
    reduced: int
    """End of the first all-reduce."""


class Moved:
    """A real trace as a template, to be printed with its events moved."""

    def __init__(self, source: Original) -> None:
        self.beside = source.beside
        events = source.events
        timed = [event for event in events if "ts" in event]
        zero = min(event["ts"] for event in timed)
        self._zero = int(zero * 1000)
        self._starts = np.array([int((e["ts"] - zero) * 1000) for e in timed], np.int64)
        self._spent = np.array([int(e.get("dur", 0) * 1000) for e in timed], np.int64)
        self._on_device = np.array([_on_device(event) for event in timed])
        self.span = int((self._starts + self._spent).max()) + 1_000_000
        self.steps = self._traced(timed)
        places = iter(range(len(timed)))
        pieces = [_printed(event, places) for event in events]
        text = ",\n".join(pieces)
        self._holes = [
            (mark.group(1) or mark.group(3), int(mark.group(2) or mark.group(4)))
            for mark in _MARK.finditer(text)
        ]
        self._text = _MARK.sub("%s", text.replace("%", "%%"))

    def copy(self, number: int, late_ns: Whole, most_ns: Whole, before_ns: int) -> tuple[str, int]:
        """Copy *number*, and by how much the next one is later.

        Args:
            number: From 0.
            late_ns: How late this rank comes in each step of the copy.
            most_ns: How late the latest of all ranks comes.
            before_ns: By how much this copy is later.
        """
        steps = self.steps
        device_at = [at for step in steps for at in (step.first_kernel, step.reduced - 1)]
        device_by = np.stack([late_ns, most_ns - late_ns], axis=1).ravel()
        # The host is not held up by the device until the end of the step.
        host_at = [at for step in steps for at in (step.begin + 1, step.end - 1)]
        starts, ends = self._starts.copy(), self._starts + self._spent
        for mine, at, by in (
            (self._on_device, device_at, device_by),
            (np.logical_not(self._on_device), host_at, device_by),
        ):
            shift = np.concatenate(([0], np.cumsum(by)))
            starts[mine] += shift[np.searchsorted(at, self._starts[mine], "right")]
            ends[mine] += shift[np.searchsorted(at, ends[mine], "left")]
        spent = (np.maximum(ends, starts) - starts).tolist()
        moments = (starts + self._zero + before_ns + number * self.span).tolist()
        values: list[str | int] = []
        for kind, value in self._holes:
            if kind in "td":
                ns = moments[value] if kind == "t" else spent[value]
                values.append(f"{ns // 1000}.{ns % 1000:03d}")
            else:
                values.append(value + number * (_LATER_STEP if kind == "s" else FRESH))
        return self._text % tuple(values), before_ns + int(most_ns.sum())

    def _traced(self, timed: list[dict[str, Any]]) -> list[TracedStep]:
        marks = sorted(
            (int(self._starts[place]), int(self._starts[place] + self._spent[place]))
            for place, event in enumerate(timed)
            if str(event.get("name")).startswith(_STEP) and event.get("cat") not in _ON_DEVICE
        )
        begins = [begin for begin, _ in marks]
        launched: dict[object, int] = {}
        for place, event in enumerate(timed):
            if event.get("cat") in {"cuda_runtime", "cuda_driver", "runtime"}:
                launched[event.get("args", {}).get("correlation")] = int(self._starts[place])
        first: dict[int, int] = {}
        reduced: dict[int, int] = {}
        for place in np.argsort(self._starts, kind="stable").tolist():
            event = timed[place]
            if event.get("cat") not in _ON_DEVICE:
                continue
            at = launched.get(event.get("args", {}).get("correlation"))
            step = int(np.searchsorted(begins, at, "right")) - 1 if at is not None else -1
            if step < 0:
                continue
            first.setdefault(step, int(self._starts[place]))
            if "AllReduce" in str(event["name"]):
                reduced.setdefault(step, int(self._starts[place] + self._spent[place]))
        return [
            TracedStep(begin=begin, end=end, first_kernel=first[step], reduced=reduced[step])
            for step, (begin, end) in enumerate(marks)
            if step in reduced
        ]


def write(job: TraceJob, trace: Path, directory: Path) -> int:
    """Write one file per rank; returns the bytes of all."""
    directory.mkdir(parents=True, exist_ok=True)
    moved = Moved(original(trace))
    copies = max(1, round(job.packed_bytes / trace.stat().st_size))
    rng = np.random.default_rng(job.seed)
    late = rng.uniform(0, job.jitter_ms * 1e6, (job.bodies + 1, copies, len(moved.steps)))
    late[-1] += job.delay_ms * 1e6 if job.late is not None else 0
    late_ns = late.astype(np.int64)
    bodies = [_body(moved, mine, late_ns.max(axis=0)) for mine in late_ns]
    for rank in range(job.ranks):
        body = bodies[-1 if rank == job.late else rank % job.bodies]
        path = directory / f"rank{rank}.pt.trace.json.gz"
        path.write_bytes(gzip.compress(_head(moved.beside, rank, job.ranks)) + body)
    return sum(path.stat().st_size for path in directory.glob("rank*.pt.trace.json.gz"))


def _body(moved: Moved, late_ns: Whole, most_ns: Whole) -> bytes:
    """The events of all copies and the end of the document, packed."""
    parts, later_ns = [], 0
    for number, (mine, most) in enumerate(zip(late_ns, most_ns, strict=True)):
        text, later_ns = moved.copy(number, mine, most, later_ns)
        parts.append(text)
    return gzip.compress((",\n".join(parts) + "]}\n").encode())


def _head(beside: dict[str, Any], rank: int, ranks: int) -> bytes:
    about = {**beside.get("distributedInfo", {}), "rank": rank, "world_size": ranks}
    groups = [{**group, "pg_size": ranks, "ranks": []} for group in about.get("pg_config", [])]
    document = {**beside, "distributedInfo": {**about, "pg_config": groups}}
    return (json.dumps(document, default=float)[:-1] + ', "traceEvents": [').encode()


def _on_device(event: dict[str, Any]) -> bool:
    return event.get("cat") in _ON_DEVICE or (event.get("ph"), event.get("cat")) == ("f", "ac2g")


def _printed(event: dict[str, Any], places: Iterator[int]) -> str:
    copy = marked(event)
    if "ts" in event:
        place = next(places)
        copy["ts"] = f"@@t{place}@@"
        if "dur" in event:
            copy["dur"] = f"@@d{place}@@"
    return json.dumps(copy, default=float, separators=(",", ":"))
