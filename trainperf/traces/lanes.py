"""The lanes of a trace's picture: few enough slices to draw, the long ones all kept."""

from dataclasses import dataclass

import numpy as np

from trainperf.core.arrays import Integers, Mask, Places
from trainperf.traces.event_table import NONE, Codes, EventTable
from trainperf.traces.metrics.device import DeviceUse, DeviceWork, sums
from trainperf.traces.metrics.device_columns import IdleSplit
from trainperf.traces.metrics.host import HostWork
from trainperf.traces.metrics.spans import Spans, StepSpans
from trainperf.traces.results import Slice, TraceLane


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """How much of a trace is drawn."""

    slices: int = 4_000
    """Of a lane at most; of more events the shorter ones become one per kind and cell.

    Between two that stay there is one more of each of at most three kinds:
    500 + 3 · (500 + 600) < 4,000.
    """
    longest: int = 500
    """Slices that stay by themselves."""
    cells: int = 600
    threads: int = 4
    streams: int = 8
    letters: int = 160
    """Of a name: those of templates are pages long."""


LANES = LaneLimits()

_KINDS = {
    DeviceUse.COMPUTE: "compute",
    DeviceUse.COMMUNICATION: "communication",
    DeviceUse.TO_DEVICE: "copy",
    DeviceUse.FROM_DEVICE: "copy",
    DeviceUse.OTHER_COPY: "copy",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What a lane is made of, in order of start."""

    start: Integers
    end: Integers
    kind: Integers
    """Index in `kinds`."""
    kinds: tuple[str, ...]
    names: list[str]
    name: Codes | Integers
    """Index in `names`."""


def lanes_of(
    table: EventTable, steps: StepSpans, device: DeviceWork, host: HostWork, idle: IdleSplit
) -> tuple[TraceLane, ...]:
    """The lanes from top to bottom; times are from the start of the first step."""
    marks = [f"step {number}" for number in steps.number.tolist()]
    rows = (
        ("steps", _plain(steps, "step", marks, np.arange(len(steps), dtype=np.int32))),
        ("loader", _plain(host.loader, "loader", ["loader"])),
        *_threads(table, steps, host),
        ("synchronising", _plain(host.syncing, "sync", ["synchronising"])),
        *_streams(table, device),
        ("device idle", _plain(idle.pauses, "idle", ["idle"])),
    )
    origin = int(steps.start[0]) if len(steps) else 0
    return tuple(
        TraceLane(name=name, slices=_slices(row, origin))
        for name, row in rows
        if len(row.start) or name == "steps"
    )


def _plain(spans: Spans, kind: str, names: list[str], name: Codes | Integers | None = None) -> _Row:
    """All of one kind; without a *name* of each, all have the first."""
    kinds = np.zeros(len(spans), np.int64)
    return _Row(
        start=spans.start,
        end=spans.end,
        kind=kinds,
        kinds=(kind,),
        names=names,
        name=kinds if name is None else name,
    )


def _threads(table: EventTable, steps: StepSpans, host: HostWork) -> list[tuple[str, _Row]]:
    """The outermost operators of the threads that ran most of them, that of the steps first."""
    thread = table.thread[host.operators]
    busiest = _busiest(thread, table.duration_ns[host.operators], LANES.threads)
    lanes = []
    for code in sorted(busiest, key=lambda code: code != steps.thread):
        rows = host.operators[thread == code]
        reach = np.maximum.accumulate(table.end_ns[rows])
        rows = rows[np.append(True, table.start_ns[rows[1:]] >= reach[:-1])]
        spans = Spans(start=table.start_ns[rows], end=table.end_ns[rows])
        row = _plain(spans, "operator", table.names, table.name[rows])
        lanes.append((f"host thread {table.threads[code][1]}", row))
    return lanes


def _streams(table: EventTable, device: DeviceWork) -> list[tuple[str, _Row]]:
    stream = table.stream[device.row]
    kinds = tuple(sorted(set(_KINDS.values())))
    of_use = np.array([kinds.index(_KINDS[use]) for use in DeviceUse], np.int64)
    lanes = []
    for number in sorted(_busiest(stream, device.end - device.start, LANES.streams)):
        mine = np.flatnonzero(stream == number)
        row = _Row(
            start=device.start[mine],
            end=device.end[mine],
            kind=of_use[device.use[mine]],
            kinds=kinds,
            names=table.names,
            name=table.name[device.row[mine]].astype(np.int64),
        )
        lanes.append(("stream" if number == NONE else f"stream {number}", row))
    return lanes


def _busiest(of: Integers | Codes, length: Integers, most: int) -> list[int]:
    values, group = np.unique(of, return_inverse=True)
    total = sums(group, length, len(values))
    return [int(values[place]) for place in np.argsort(-total, kind="stable")[:most]]


def _slices(row: _Row, origin: int) -> tuple[Slice, ...]:
    """The events of a lane; of too many the longest, and the others merged into few.

    Shorter ones are merged that start in the same cell of time, are of one kind, and have no long
    one between them.  Of the starts 0 1 2 | 10 11, of one kind, with a long event at 1 and cells
    of 10, there remain: 0; 1, the long one; 2; and 10 to 11 as `2 × operator`.
    """
    count = len(row.start)
    if count <= LANES.slices:
        return tuple(_slice(row, origin, (place, place), 1) for place in range(count))
    is_long = np.zeros(count, bool)
    is_long[np.argsort(row.start - row.end, kind="stable")[: LANES.longest]] = True
    slices = [_slice(row, origin, (place, place), 1) for place in np.flatnonzero(is_long).tolist()]
    for merged in _merged(row, is_long):
        ends = int(merged[0]), int(merged[np.argmax(row.end[merged])])
        slices.append(_slice(row, origin, ends, len(merged)))
    return tuple(sorted(slices, key=lambda each: (each.start_s, each.end_s)))


def _merged(row: _Row, is_long: Mask) -> list[Places]:
    """The places of the shorter events, those of one slice together and in order of start."""
    first, last = int(row.start[0]), int(row.end.max())
    cell_ns = max(1, (last - first) // LANES.cells + 1)
    short = np.flatnonzero(~is_long)
    cell = (row.start[short] - first) // cell_ns
    long_before = np.cumsum(is_long)[short]
    # One number for the three, each in a range of its own.
    group = (long_before * (LANES.cells + 1) + cell) * len(row.kinds) + row.kind[short]
    order = np.argsort(group, kind="stable")
    bounds = np.flatnonzero(np.diff(group[order])) + 1
    return np.split(short[order], bounds)


def _slice(row: _Row, origin: int, ends: tuple[int, int], count: int) -> Slice:
    """From the start of the first of *ends* to the end of the second."""
    first, last = ends
    kind = row.kinds[row.kind[first]]
    name = row.names[row.name[first]][: LANES.letters] if count == 1 else f"{count} × {kind}"
    start_ns, end_ns = int(row.start[first]) - origin, int(row.end[last]) - origin
    return Slice(start_s=start_ns / 1e9, end_s=end_ns / 1e9, name=name, kind=kind)
