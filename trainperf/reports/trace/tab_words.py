"""What do the tab and the report say of one capture?  The numbers of its analysis, in words."""

from collections.abc import Callable, Sequence

import msgspec

from trainperf.core.findings import Finding
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import count, duration, plural, rate, share, size, times
from trainperf.reports.run.rows import NamedValue
from trainperf.traces.results import (
    Operator,
    RankTrace,
    Straggler,
    TraceReport,
    TraceStep,
)


_MOST_ROWS = 64
"""Of a table: a capture has a handful of steps."""

_TOTALS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("step_s", "step (median)", duration),
    ("gpu_busy_fraction", "device busy", share),
    ("compute_fraction", "device computing", share),
    ("idle_data_wait_fraction", "idle: no data", share),
    ("idle_host_bound_fraction", "idle: host-bound", share),
    ("idle_sync_fraction", "idle: synchronisation", share),
    ("idle_other_fraction", "idle: other", share),
    ("data_wait_s", "data wait", duration),
    ("data_wait_exposed_s", "data wait, device idle", duration),
    ("h2d_s", "copies to the device", duration),
    ("h2d_overlap_fraction", "copies hidden behind compute", share),
    ("comm_s", "communication", duration),
    ("comm_exposed_s", "communication not hidden", duration),
    ("allreduce_tail_s", "all-reduce tail", duration),
    ("cpu_op_s", "host in operators", duration),
    ("kernels", "kernels", count),
    ("sync_calls", "synchronising calls", count),
    ("item_calls", ".item() calls", count),
    ("unlaunched_fraction", "device events without a launch", share),
)
"""Field of `Totals`, what it is called, and how it is said; times and counts are per step."""

_STEPS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("step_s", "step", duration),
    ("gpu_busy_s", "device busy", duration),
    ("gpu_idle_s", "idle", duration),
    ("idle_data_wait_s", "idle: no data", duration),
    ("idle_host_bound_s", "idle: host-bound", duration),
    ("data_wait_s", "data wait", duration),
    ("h2d_s", "h2d", duration),
    ("comm_exposed_s", "comm. not hidden", duration),
    ("allreduce_tail_s", "tail", duration),
    ("kernels", "kernels", count),
    ("sync_calls", "syncs", count),
)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows under a head; the first column is a name, the others are numbers."""

    title: str
    head: list[str]
    rows: list[list[str]]


class RankWords(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's trace."""

    place: int
    """Its place in the analysis: ranks may be unknown or there twice."""
    label: str
    about: str
    file: str
    warnings: list[str]
    totals: list[NamedValue]
    absent: list[NamedValue]
    """What was not measured or does not apply, and why."""
    tables: list[Table]
    has_picture: bool


class CaptureWords(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is said about a capture."""

    answer: str
    warnings: list[str]
    findings: list[NamedValue]
    """What to look at, with the action."""
    stragglers: list[str]
    ranks: list[RankWords]


def capture_words(report: TraceReport) -> CaptureWords:
    """What the page says about an analysis."""
    return CaptureWords(
        answer=plain(report.answer),
        warnings=[plain(warning) for warning in report.warnings],
        findings=[_finding(finding) for finding in report.findings],
        stragglers=[_late(late) for late in report.stragglers[:_MOST_ROWS]],
        ranks=[_rank(place, rank) for place, rank in enumerate(report.ranks)],
    )


def _late(late: Straggler) -> str:
    point = f" in {plain(late.point)}" if late.point else ""
    waited = duration(late.wait_s)
    return (
        f"step {late.step}: rank {late.rank} comes last{point}, others wait up to {waited} for it"
    )


def _finding(finding: Finding) -> NamedValue:
    gain = finding.gain_upper_bound
    bound = "" if gain is None else f" (at most {times(gain)} faster)"
    said = f"{'; '.join(finding.evidence)} → {finding.action}"
    return NamedValue(name=plain(f"{finding.title}{bound}"), said=plain(said))


def _rank(place: int, rank: RankTrace) -> RankWords:
    values = [(name, label, say, getattr(rank.totals, name)) for name, label, say in _TOTALS]
    cut_by = {"none": "no step marks: one window"}.get(rank.step_source, rank.step_source)
    known = [plural(rank.totals.steps, "step"), cut_by, rank.device]
    if rank.totals.steps > 1:
        known.append("times and counts are a step's on average")
    sums = [
        _together(rank, table) for table in (*_operators(rank), _collectives(rank), _syncs(rank))
    ]
    tables = [_steps(rank.steps), *sums]
    return RankWords(
        place=place,
        label="one rank" if rank.rank is None else f"rank {rank.rank}",
        about=plain(" · ".join(part for part in known if part)),
        file=rank.file,
        warnings=[plain(warning) for warning in rank.warnings],
        totals=[
            NamedValue(name=label, said=say(v)) for _, label, say, v in values if v is not None
        ],
        absent=[
            NamedValue(name=label, said=plain(rank.reasons.get(name, "not measured")))
            for name, label, _, value in values
            if value is None
        ],
        tables=[table for table in tables if table.rows],
        has_picture=any(lane.slices for lane in rank.lanes),
    )


def _steps(steps: Sequence[TraceStep]) -> Table:
    shown = steps[:_MOST_ROWS]
    used = [
        (name, label, say)
        for name, label, say in _STEPS
        if any(getattr(step, name) is not None for step in shown)
    ]
    rows = []
    for step in shown:
        values = [(getattr(step, name), say) for name, _, say in used]
        rows.append([str(step.step), *("" if v is None else say(v) for v, say in values)])
    return Table(title="Steps", head=["number", *(label for _, label, _ in used)], rows=rows)


def _together(rank: RankTrace, table: Table) -> Table:
    """A table of sums says of how many steps."""
    steps = rank.totals.steps
    said = f"{table.title}, {steps} steps together" if steps > 1 else table.title
    return msgspec.structs.replace(table, title=said)


def _operators(rank: RankTrace) -> list[Table]:
    """By device time and by CPU time; without a device they are the same."""
    if any(operator.self_device_s is not None for operator in rank.top_operators):
        return [
            _operators_by("device", rank.top_operators),
            _operators_by("CPU", rank.top_cpu_operators),
        ]
    return [_operators_by("CPU", rank.top_operators)]


def _operators_by(what: str, operators: Sequence[Operator]) -> Table:
    kinds = {True: "few large", False: "many small", None: ""}
    return Table(
        title=f"Operators by self {what} time",
        head=["operator", "shapes", "calls", "self device", "self CPU", "kernels"],
        rows=[
            [
                plain(operator.name),
                plain(operator.shapes or ""),
                count(operator.calls),
                "" if operator.self_device_s is None else duration(operator.self_device_s),
                duration(operator.self_cpu_s),
                kinds[operator.few_large],
            ]
            for operator in operators[:_MOST_ROWS]
        ],
    )


def _collectives(rank: RankTrace) -> Table:
    return Table(
        title="Collectives",
        head=["kind", "count", "time", "not hidden", "bytes", "achieved", "bus", ""],
        rows=[
            [
                plain(each.kind),
                count(each.count),
                duration(each.total_s),
                _said(each.exposed_s, duration),
                _said(each.bytes, size),
                _said(each.achieved_bytes_per_s, rate),
                _said(each.bus_bytes_per_s, rate),
                "many small" if each.many_small else "",
            ]
            for each in rank.collectives[:_MOST_ROWS]
        ],
    )


def _said(value: float | None, say: Callable[[float], str]) -> str:
    return "–" if value is None else say(value)


def _syncs(rank: RankTrace) -> Table:
    return Table(
        title="Where the host waits for the device",
        head=["call", "count", "time", "called from"],
        rows=[
            [
                plain(site.call),
                count(site.count),
                duration(site.total_s),
                plain(" ← ".join(site.stack[:3])),
            ]
            for site in rank.sync_sites[:_MOST_ROWS]
        ],
    )
