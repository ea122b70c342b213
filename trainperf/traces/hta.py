"""The figures of Holistic Trace Analysis 0.5, by its definitions, for comparison only.

They differ from ours on purpose or by accident: the last of several steps is left out; times that
are no whole microseconds lose up to two at their ends; the device's records of waiting count as
work; communication is what is called `nccl…Kernel`.
"""

import re

import numpy as np
import numpy.typing as npt

from trainperf.traces.event_table import DEVICE_WORK, NONE, Column, EventTable, Kind
from trainperf.traces.metrics.spans import Rows, Spans, both, by_name, launches_of
from trainperf.traces.results import HtaBreakdown, HtaStream


_COMMUNICATION = re.compile(r"^nccl.*Kernel")
_MEMORY = re.compile(r"(^Memcpy)|(^Memset)|(^dma)")
_NOT_COMPUTE = re.compile(r"(^nccl.*Kernel)|(.*(Memcpy)|(Memset))|(.*Sync)")
_WAITING = ("Event Sync", "Context Sync")
_STEP = "ProfilerStep"

CONSECUTIVE_NS = 30_000
"""A gap below this is taken for the cost of a launch."""


def hta_breakdown(table: EventTable) -> HtaBreakdown | None:
    """The temporal, overlap and idle breakdowns; `None` where there is no device work."""
    clock = _rounded(table)
    rows = _device_rows(table, clock)
    if not len(rows):
        return None
    everything = _merged(clock, rows)
    compute = _merged(
        clock,
        rows[~by_name(table, rows, lambda name: _MEMORY.match(name) or _NOT_COMPUTE.match(name))],
    )
    communication = _merged(clock, rows[by_name(table, rows, _COMMUNICATION.match)])
    whole = int(everything.end[-1] - everything.start[0])
    idle = whole - everything.total
    return HtaBreakdown(
        kernel_time_s=whole / 1e9,
        idle_s=idle / 1e9,
        compute_s=compute.total / 1e9,
        non_compute_s=(whole - compute.total - idle) / 1e9,
        comm_overlap_fraction=_overlap(communication, compute),
        idle_by_stream=_streams(table, clock, rows),
    )


def _rounded(table: EventTable) -> Spans:
    """Starts up and ends down to whole microseconds, if any start is none; from the file's zero.

    In the doubles of the original: far from zero they are a quarter of a microsecond apart.
    """
    start = table.start_ns + (table.base_ns - table.clock_ns)
    if not (start % 1_000).any():
        return Spans(start=start, end=start + table.duration_ns)
    begin = _microseconds(start)
    end = np.floor(begin + _microseconds(table.duration_ns))
    return Spans(start=np.ceil(begin).astype(np.int64) * 1_000, end=end.astype(np.int64) * 1_000)


def _microseconds(nanoseconds: Column) -> npt.NDArray[np.float64]:
    return nanoseconds // 1_000 + (nanoseconds % 1_000) / 1_000


def _device_rows(table: EventTable, clock: Spans) -> Rows:
    """What it takes for device work: with a stream, and launched before the last step began."""
    rows = table.rows(*DEVICE_WORK, Kind.DEVICE_SYNC)
    streamed = table.stream[rows] != NONE
    marks = np.array([_STEP in name for name in table.names], bool)
    if int(marks.sum()) < 2:
        return np.asarray(rows[streamed])
    on_device = np.zeros(len(table), bool)
    on_device[rows[streamed & (table.correlation[rows] >= 0)]] = True
    waiting = np.array([name in _WAITING for name in table.names], bool)
    on_device |= waiting[table.name]
    # The device's copies of the marks count as well.
    last = clock.start[marks[table.name] & ~on_device].max(initial=np.iinfo(np.int64).min)
    calls = table.correlation[~on_device & (clock.start < last)]
    kept = np.isin(table.correlation[rows], calls)
    return np.asarray(rows[on_device[rows] & kept & streamed])


def _merged(clock: Spans, rows: Rows) -> Spans:
    """The union, but a lone event that rounding has turned around counts with minus one."""
    order = np.argsort(clock.start[rows], kind="stable")
    start, end = clock.start[rows][order], clock.end[rows][order]
    opens = np.ones(len(rows), bool)
    opens[1:] = start[1:] > np.maximum.accumulate(end)[:-1]
    first = np.flatnonzero(opens)
    if not len(first):
        return Spans(start=start, end=end)
    return Spans(start=start[first], end=np.maximum.reduceat(end, first))


def _overlap(communication: Spans, compute: Spans) -> float | None:
    if not communication.total:
        return None
    return both(_real(communication), _real(compute)).total / communication.total


def _real(spans: Spans) -> Spans:
    kept = spans.end > spans.start
    return Spans(start=spans.start[kept], end=spans.end[kept])


def _streams(table: EventTable, clock: Spans, rows: Rows) -> tuple[HtaStream, ...]:
    """Gaps before each event of a stream: the host was late, the launch takes its time, or else."""
    rows = rows[np.isin(table.kind[rows], DEVICE_WORK)]
    launch = launches_of(table, rows)
    # Launches that are not recorded have the number 0 there, which is the file's first event.
    first = int(clock.start[np.searchsorted(table.start_ns, table.first_ns)])
    launched = np.where(launch == NONE, first, clock.start[launch])
    out = []
    for stream in np.unique(table.stream[rows]).tolist():
        mine = np.flatnonzero(table.stream[rows] == stream)
        mine = mine[np.argsort(clock.start[rows[mine]], kind="stable")]
        before, after = rows[mine[:-1]], rows[mine[1:]]
        gap = clock.start[after] - clock.end[before]
        late = launched[mine[1:]] > clock.end[before]
        short = ~late & (gap < CONSECUTIVE_NS)
        out.append(
            HtaStream(
                stream=stream,
                host_wait_s=int(gap[late].sum()) / 1e9,
                kernel_wait_s=int(gap[short].sum()) / 1e9,
                other_s=int(gap[~late & ~short].sum()) / 1e9,
            )
        )
    return tuple(out)
