"""Which tables does a trace report have?  Steps or ranks, collectives, operators, stragglers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainperf.core.formatting.units import count, duration, fine_share, rate, size
from trainperf.traces.results import (
    Collective,
    Operator,
    RankTrace,
    Straggler,
    SyncSite,
    TraceReport,
)


OPERATORS = 5
SITES = 3
STEPS = 6
RANKS = 16
"""Rows of each that are shown; the JSON form has all."""

LATE = 0.01
"""Share of a step from which on a wait for another rank is told."""

NOT_MEASURED = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table with a head."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def grids(report: TraceReport) -> list[Grid]:
    """The tables of a report, those without rows left out."""
    first = report.ranks[0]
    alone = len(report.ranks) == 1
    found = [
        _steps(first) if alone else _ranks(report),
        *(_of(first, one, alone=alone) for one in _details(first)),
        _late(report),
        _hta(report),
        _hta_streams(report),
    ]
    return [grid for grid in found if grid is not None and grid.rows]


def _details(rank: RankTrace) -> list[Grid]:
    """What is told of one rank; of several the first stands for them."""
    worked = rank.device_worked
    by_device = [_operators("operators by device time", rank.top_operators, worked)]
    return [
        _collectives(rank.collectives),
        *(by_device if worked else ()),
        _operators("operators by CPU time", rank.top_cpu_operators, worked),
        _sites(rank.sync_sites),
    ]


def _of(rank: RankTrace, grid: Grid, *, alone: bool) -> Grid:
    """Whose figures they are, and of how many steps together."""
    named = rank.file if rank.rank is None else f"rank {rank.rank}"
    whose = "" if alone else f", {named}"
    steps = f", {len(rank.steps)} steps together" if len(rank.steps) > 1 else ""
    return replace(grid, title=f"{grid.title}{whose}{steps}")


def _steps(rank: RankTrace) -> Grid | None:
    if len(rank.steps) < 2:
        return None
    shown = rank.steps[:STEPS]
    more = f" (the first {STEPS} of {len(rank.steps)})" if len(rank.steps) > STEPS else ""
    return Grid(
        title=f"steps{more}",
        head=("step", "time", "GPU busy", "data wait", "exposed comm", "tail"),
        rows=tuple(
            (
                str(step.step),
                duration(step.step_s),
                _maybe(step.gpu_busy_s),
                _maybe(step.data_wait_s),
                _maybe(step.comm_exposed_s),
                _tail(step.allreduce_tail_s, step.allreduce_early_s),
            )
            for step in shown
        ),
    )


def _ranks(report: TraceReport) -> Grid:
    more = len(report.ranks) - RANKS
    return Grid(
        title="ranks" + (f" (the first {RANKS} of {len(report.ranks)})" if more > 0 else ""),
        head=("rank", "step", "GPU busy", "computing", "data wait", "comm", "exposed", "tail"),
        rows=tuple(
            (
                _named(rank),
                duration(rank.totals.step_s),
                _percent(rank.totals.gpu_busy_fraction),
                _percent(rank.totals.compute_fraction),
                _maybe(rank.totals.data_wait_s),
                _maybe(rank.totals.comm_s),
                _maybe(rank.totals.comm_exposed_s),
                _maybe(rank.totals.allreduce_tail_s),
            )
            for rank in report.ranks[:RANKS]
        ),
    )


def _collectives(found: Sequence[Collective]) -> Grid:
    return Grid(
        title="collectives",
        head=("kind", "count", "time", "exposed", "bytes", "achieved", "bus", ""),
        rows=tuple(
            (
                one.kind,
                count(one.count),
                duration(one.total_s),
                _maybe(one.exposed_s),
                NOT_MEASURED if one.bytes is None else size(one.bytes),
                _speed(one.achieved_bytes_per_s),
                _speed(one.bus_bytes_per_s),
                "many small ones" if one.many_small else "",
            )
            for one in found
        ),
    )


def _operators(what: str, found: Sequence[Operator], device: bool) -> Grid:  # noqa: FBT001 private
    return Grid(
        title=what,
        head=("operator", "self device", "self CPU", "calls", ""),
        rows=tuple(
            (
                one.name,
                _maybe(one.self_device_s if device else None),
                duration(one.self_cpu_s),
                count(one.calls),
                _sort_of(one),
            )
            for one in found[:OPERATORS]
        ),
    )


def _sort_of(one: Operator) -> str:
    if one.few_large is None:
        return ""
    return "few large kernels" if one.few_large else "many small kernels"


def _sites(found: Sequence[SyncSite]) -> Grid:
    return Grid(
        title="where the host waits for the device",
        head=("call", "time", "count", "from"),
        rows=tuple(
            (one.call, duration(one.total_s), count(one.count), one.stack[0] if one.stack else "")
            for one in found[:SITES]
        ),
    )


def _late(report: TraceReport) -> Grid:
    """Waits that are worth telling; what is below is noise of ranks that come together."""
    whole_s = max(rank.totals.step_s for rank in report.ranks)
    told: list[Straggler] = [one for one in report.stragglers if one.wait_s >= LATE * whole_s]
    return Grid(
        title="who is waited for",
        head=("step", "rank", "in", "longest wait", "collectives themselves"),
        rows=tuple(
            (
                str(one.step),
                str(one.rank),
                one.point,
                duration(one.wait_s),
                duration(one.transfer_s),
            )
            for one in told[:RANKS]
        ),
    )


def _hta(report: TraceReport) -> Grid | None:
    known = [(rank, rank.hta) for rank in report.ranks if rank.hta is not None]
    if not known:
        return None
    return Grid(
        title="by HTA's definitions (without the last step, rounded; docs/reference/traces.md)",
        head=("rank", "device time", "idle", "compute", "non-compute", "overlap"),
        rows=tuple(
            (
                _named(rank),
                _microseconds(found.kernel_time_s),
                _microseconds(found.idle_s),
                _microseconds(found.compute_s),
                _microseconds(found.non_compute_s),
                _percent(found.comm_overlap_fraction),
            )
            for rank, found in known
        ),
    )


def _hta_streams(report: TraceReport) -> Grid | None:
    known = [(rank, rank.hta) for rank in report.ranks if rank.hta is not None]
    return Grid(
        title="idle time of each stream by HTA's definitions",
        head=("rank", "stream", "host wait", "kernel wait", "other"),
        rows=tuple(
            (
                _named(rank),
                str(one.stream),
                _microseconds(one.host_wait_s),
                _microseconds(one.kernel_wait_s),
                _microseconds(one.other_s),
            )
            for rank, found in known
            for one in found.idle_by_stream
        ),
    )


def _named(rank: RankTrace) -> str:
    return NOT_MEASURED if rank.rank is None else str(rank.rank)


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


def _tail(tail_s: float | None, early_s: float | None) -> str:
    if tail_s is None:
        return NOT_MEASURED
    return f"{duration(early_s)} early" if early_s else duration(tail_s)


def _maybe(seconds: float | None) -> str:
    return NOT_MEASURED if seconds is None else duration(seconds)


def _percent(fraction: float | None) -> str:
    return NOT_MEASURED if fraction is None else fine_share(fraction)


def _speed(bytes_per_s: float | None) -> str:
    return NOT_MEASURED if bytes_per_s is None else rate(bytes_per_s)
