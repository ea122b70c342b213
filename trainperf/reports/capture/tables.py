"""The tables of a trace report: ranks, stragglers, steps, collectives, operators, waits."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from trainperf.core.formatting.table import UNKNOWN, Table, or_unknown
from trainperf.core.formatting.units import count, duration, fine_share, plural, rate, share, size
from trainperf.core.formatting.wrap import shortened
from trainperf.reports.capture.rows import LABELS
from trainperf.traces.results import (
    Collective,
    Kernel,
    Operator,
    ProcessGroup,
    RankTrace,
    Straggler,
    SyncSite,
    TraceReport,
    TraceStep,
)


ROWS = 8
"""Of a table about one rank; the JSON form has all."""

RANKS = 16
"""Rows of a table about the ranks."""

LATE = 0.01
"""Share of a step from which on a wait for another rank is listed; what is below is noise."""

_EMPTY = frozenset({"", UNKNOWN, "0 s"})
"""Cells of columns that are left out, where all of a column's are like this."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class _Column(Generic[Item]):
    head: str
    cell: Callable[[Item], str]
    is_words: bool = False


def job_tables(report: TraceReport) -> tuple[Table, ...]:
    """The tables about all ranks; those without rows are left out."""
    ranks = report.ranks if len(report.ranks) > 1 else ()
    longest_s = max((rank.totals.step_s for rank in report.ranks), default=0.0)
    late = [each for each in report.stragglers if each.wait_s >= LATE * longest_s]
    tables = (
        _table("ranks", _RANKS, ranks, RANKS),
        _table("stragglers: the rank that the others waited for", _STRAGGLERS, late, RANKS),
    )
    return tuple(table for table in tables if table.rows)


def rank_tables(rank: RankTrace) -> tuple[Table, ...]:
    """The tables about one rank; those without rows are left out."""
    steps = rank.steps if len(rank.steps) > 1 else ()
    by_device = rank.top_operators if rank.device_worked else ()
    by_cpu = rank.top_cpu_operators if rank.device_worked else rank.top_operators
    groups = rank.process_groups
    sums = (
        _table("collectives", _COLLECTIVES, rank.collectives),
        _table("process groups", _GROUPS, groups if len(groups) > 1 else ()),
        _table("operators by self device time", _OPERATORS, by_device),
        _table("operators by self CPU time", _OPERATORS, by_cpu or rank.top_cpu_operators),
        _table("kernels by device time", _TOP_KERNELS, rank.top_kernels),
        _table("where the host waits for the device", _SYNCS, rank.sync_sites),
    )
    of_steps = f", sum of {plural(len(rank.steps), 'step')}" if len(rank.steps) > 1 else ""
    summed = [replace(table, title=f"{table.title}{of_steps}") for table in sums]
    return tuple(table for table in (_table("steps", _STEPS, steps), *summed) if table.rows)


def _table(
    title: str, columns: Sequence[_Column[Item]], items: Sequence[Item], most: int = ROWS
) -> Table:
    """The first items as rows; columns in which no row has anything are left out."""
    cells = [[column.cell(item) for item in items[:most]] for column in columns]
    used = [
        place for place, column in enumerate(cells) if not place or not _EMPTY.issuperset(column)
    ]
    numbers = [place for place, column in enumerate(used) if not columns[column].is_words]
    more = len(items) - most
    return Table(
        title=title,
        head=tuple(columns[place].head for place in used),
        rows=tuple(zip(*(cells[place] for place in used), strict=True)),
        words=numbers[0] if numbers else len(used),
        end_words=len(used) - 1 - numbers[-1] if numbers else 0,
        notes=(f"{more:,} more with: trainperf trace --format json",) if more > 0 else (),
    )


def _seconds(value: float | None) -> str:
    return or_unknown(value, duration)


def _share(value: float | None) -> str:
    return or_unknown(value, fine_share)


def _tail(step: TraceStep) -> str:
    early_s = step.allreduce_early_s
    return f"{duration(early_s)} early" if early_s else _seconds(step.allreduce_tail_s)


def _shapes(operator: Operator) -> str:
    """E.g. `32×256×14×14 · 1024×256×1×1`, without the scalars among the inputs."""
    shapes = re.findall(r"\[(\d+(?:, *\d+)*)\]", operator.shapes or "")
    return " · ".join(re.sub(", *", "×", shape) for shape in shapes)


_RANKS: tuple[_Column[RankTrace], ...] = (
    _Column("rank", lambda rank: or_unknown(rank.rank, count), is_words=True),
    _Column(LABELS["step_s"], lambda rank: duration(rank.totals.step_s)),
    _Column(LABELS["gpu_busy_fraction"], lambda rank: _share(rank.totals.gpu_busy_fraction)),
    _Column(LABELS["compute_fraction"], lambda rank: _share(rank.totals.compute_fraction)),
    _Column(LABELS["data_wait_s"], lambda rank: _seconds(rank.totals.data_wait_s)),
    _Column(LABELS["comm_s"], lambda rank: _seconds(rank.totals.comm_s)),
    _Column(LABELS["comm_exposed_s"], lambda rank: _seconds(rank.totals.comm_exposed_s)),
    _Column(LABELS["allreduce_tail_s"], lambda rank: _seconds(rank.totals.allreduce_tail_s)),
)

_STRAGGLERS: tuple[_Column[Straggler], ...] = (
    _Column("step", lambda late: str(late.step), is_words=True),
    _Column("rank", lambda late: str(late.rank)),
    _Column("longest wait", lambda late: duration(late.wait_s)),
    _Column("collectives themselves", lambda late: duration(late.transfer_s)),
    _Column("in", lambda late: late.point, is_words=True),
)

_STEPS: tuple[_Column[TraceStep], ...] = (
    _Column("number", lambda step: str(step.step), is_words=True),
    _Column(LABELS["step_s"], lambda step: duration(step.step_s)),
    _Column(LABELS["gpu_busy_fraction"], lambda step: _seconds(step.gpu_busy_s)),
    _Column(LABELS["gpu_idle_s"], lambda step: _seconds(step.gpu_idle_s)),
    _Column(LABELS["idle_data_wait_fraction"], lambda step: _seconds(step.idle_data_wait_s)),
    _Column(LABELS["idle_host_bound_fraction"], lambda step: _seconds(step.idle_host_bound_s)),
    _Column(LABELS["data_wait_s"], lambda step: _seconds(step.data_wait_s)),
    _Column(LABELS["comm_exposed_s"], lambda step: _seconds(step.comm_exposed_s)),
    _Column(LABELS["allreduce_tail_s"], _tail),
)

_COLLECTIVES: tuple[_Column[Collective], ...] = (
    _Column("kind", lambda each: each.kind, is_words=True),
    _Column("count", lambda each: count(each.count)),
    _Column("time", lambda each: duration(each.total_s)),
    _Column("exposed", lambda each: _seconds(each.exposed_s)),
    _Column("bytes", lambda each: or_unknown(each.bytes, size)),
    _Column("achieved", lambda each: or_unknown(each.achieved_bytes_per_s, rate)),
    _Column("bus", lambda each: or_unknown(each.bus_bytes_per_s, rate)),
    _Column("messages", lambda each: "many small" if each.many_small else "", is_words=True),
)

_GROUPS: tuple[_Column[ProcessGroup], ...] = (
    _Column("group", lambda each: each.name or UNKNOWN, is_words=True),
    _Column("ranks", lambda each: or_unknown(each.members, count)),
    _Column("collectives", lambda each: count(each.count)),
    _Column("time", lambda each: duration(each.total_s)),
    _Column("exposed", lambda each: _seconds(each.exposed_s)),
)

_KERNELS = {None: "", True: "few large", False: "many small"}
_OPERATORS: tuple[_Column[Operator], ...] = (
    _Column("operator", lambda each: each.name, is_words=True),
    _Column("calls", lambda each: count(each.calls)),
    _Column("self device", lambda each: _seconds(each.self_device_s)),
    _Column("self CPU", lambda each: duration(each.self_cpu_s)),
    _Column("kernels", lambda each: _KERNELS[each.few_large], is_words=True),
    _Column("shapes", _shapes, is_words=True),
)

_TOP_KERNELS: tuple[_Column[Kernel], ...] = (
    _Column("kernel", lambda each: shortened(each.name), is_words=True),
    _Column("calls", lambda each: count(each.calls)),
    _Column("time", lambda each: duration(each.total_s)),
    _Column("share", lambda each: fine_share(each.fraction)),
    _Column("mean", lambda each: duration(each.total_s / each.calls)),
    _Column("blocks/SM", lambda each: or_unknown(each.blocks_per_sm, lambda value: f"{value:.3g}")),
    _Column("occupancy", lambda each: or_unknown(each.occupancy_fraction, share)),
    _Column("tensor cores", lambda each: "yes" if each.tensor_cores else "", is_words=True),
)

_SYNCS: tuple[_Column[SyncSite], ...] = (
    _Column("call", lambda site: site.call, is_words=True),
    _Column("count", lambda site: count(site.count)),
    _Column("time", lambda site: duration(site.total_s)),
    _Column("called from", lambda site: " ← ".join(site.stack[:3]), is_words=True),
)
