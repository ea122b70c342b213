"""Breakdown of the mean step of a traced rank: a row for every figure, with its name and a note.

`LABELS` has the one name of each figure: rows, tables and the list of missing figures use it.
"""

from collections.abc import Sequence

from trainperf.core.findings import LIMITS
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.units import count, duration, fine_share, share, size
from trainperf.core.machine.link import of_link
from trainperf.traces.results import RankTrace


LABELS = {
    "step_s": "step",
    "gpu_busy_fraction": "GPU busy",
    "compute_fraction": "computing",
    "gpu_idle_s": "GPU idle",
    "idle_data_wait_fraction": "idle: data wait",
    "idle_host_bound_fraction": "idle: host-bound",
    "idle_sync_fraction": "idle: synchronising",
    "idle_other_fraction": "idle: other",
    "data_wait_s": "data wait",
    "h2d_s": "H2D copies",
    "comm_s": "communication",
    "comm_exposed_s": "exposed communication",
    "allreduce_tail_s": "all-reduce tail",
    "kernels": "kernels",
    "sync_calls": "synchronising calls",
    "cpu_op_s": "host in operators",
    "hole_s": "nothing runs",
    "memory_peak_bytes": "memory peak",
}
"""Field of `Totals`, `TraceStep` or `RankTrace` to what people read."""

_MISSED = (
    "gpu_busy_fraction", "data_wait_s", "h2d_s", "comm_s", "comm_exposed_s", "allreduce_tail_s",
    "kernels", "sync_calls", "cpu_op_s",
)  # fmt: skip
"""Figures of `Totals` whose absence is explained; the others are absent together with these."""


Row = tuple[str, str, str]
"""Name, value and what explains it."""


def rows(rank: RankTrace) -> Table:
    """Where the mean step of one rank goes."""
    every = (
        _step(rank),
        *_device(rank),
        *_data_wait(rank),
        *_copies(rank),
        *_communication(rank),
        *_host(rank),
    )
    return Table(title="where the step goes", head=("", "", ""), rows=every, end_words=1)


def missing_figures(rank: RankTrace) -> list[tuple[str, str]]:
    """What was not measured or does not apply, and why."""
    return [
        (LABELS[field], rank.reasons.get(field, "not measured"))
        for field in _MISSED
        if getattr(rank.totals, field) is None
    ]


def _row(field: str, value: str, note: str = "", *, inner: bool = False) -> Row:
    """A row; one that is *inner* is a part of the row above."""
    return f"{'  ' if inner else ''}{LABELS[field]}", value, note


def _per_step(seconds: float) -> str:
    return f"{duration(seconds)}/step"


def _step(rank: RankTrace) -> Row:
    """The median, and what the shares are shares of where that is another time."""
    median, mean = duration(rank.totals.step_s), duration(rank.host_step_s)
    note = "median on the host" + (f"; mean {mean}" if mean != median else "")
    if rank.period_s > (1 + LIMITS.worth) * rank.host_step_s:
        note += f"; {duration(rank.period_s)} on the device"
    return _row("step_s", median, note)


def _device(rank: RankTrace) -> list[Row]:
    totals = rank.totals
    if totals.gpu_busy_fraction is None:
        return []
    busy = f"{_per_step(totals.gpu_busy_s or 0.0)}; of the span of the steps' GPU work"
    inner = {
        "idle_data_wait_fraction": "the host is in the DataLoader",
        "idle_host_bound_fraction": _kernels(rank),
        "idle_sync_fraction": _syncs(rank),
        "idle_other_fraction": "the next work had been launched",
    }
    computing = fine_share(totals.compute_fraction or 0.0)
    return [
        _row("gpu_busy_fraction", fine_share(totals.gpu_busy_fraction), busy),
        _row("compute_fraction", computing, _tensor_cores(rank), inner=True),
        _row("gpu_idle_s", fine_share(1.0 - totals.gpu_busy_fraction)),
        *(
            _row(field, fine_share(getattr(totals, field) or 0.0), note, inner=True)
            for field, note in inner.items()
        ),
    ]


def _kernels(rank: RankTrace) -> str:
    short = sum(step.short_kernels or 0 for step in rank.steps)
    kernels = sum(step.kernels or 0 for step in rank.steps)
    few = f", {share(short / kernels)} of them below 10 µs" if kernels else ""
    return f"{count(round(rank.totals.kernels or 0.0))} kernels/step{few}"


def _syncs(rank: RankTrace) -> str:
    calls, items = rank.totals.sync_calls or 0.0, rank.totals.item_calls or 0.0
    if not calls and not items:
        return ""
    waited = duration(_mean([step.sync_s for step in rank.steps]) or 0.0)
    return f"synchronising calls: {count(calls)}/step, {waited}; .item(): {count(items)}/step"


def _tensor_cores(rank: RankTrace) -> str:
    fraction = _mean([step.tensor_core_fraction for step in rank.steps])
    return "" if fraction is None else f"{share(fraction)} in kernels named like tensor-core ones"


def _data_wait(rank: RankTrace) -> list[Row]:
    waited_s, lost_s = rank.totals.data_wait_s, rank.totals.data_wait_exposed_s
    if waited_s is None:
        return []
    note = "in the DataLoader"
    if waited_s and lost_s is not None:
        note += f", {duration(lost_s)} of it with the GPU idle"
    return [_row("data_wait_s", _per_step(waited_s), note)]


def _copies(rank: RankTrace) -> list[Row]:
    if not rank.totals.h2d_s:
        return []
    moved = _mean([step.h2d_bytes for step in rank.steps])
    much = f"{size(moved)}/step{_rate(rank)}, " if moved is not None else ""
    hidden = share(rank.totals.h2d_overlap_fraction or 0.0)
    return [_row("h2d_s", _per_step(rank.totals.h2d_s), f"{much}{hidden} hidden by computing")]


def _rate(rank: RankTrace) -> str:
    """E.g. ` at 2.00 GB/s, 3.1 % of the link's 64.0 GB/s`: of the steps whose bytes are known."""
    timed = [(s.h2d_bytes, s.h2d_s) for s in rank.steps if s.h2d_bytes and s.h2d_s]
    if not timed:
        return ""
    copied, spent_s = (sum(column) for column in zip(*timed, strict=True))
    return f" at {of_link(copied / spent_s, rank.device or '')}"


def _communication(rank: RankTrace) -> list[Row]:
    totals = rank.totals
    if not totals.comm_s:
        return []
    on_host = "" if totals.comm_exposed_s is not None else "on the host"
    out = [_row("comm_s", _per_step(totals.comm_s), on_host)]
    if totals.comm_exposed_s is not None:
        hidden = f"{share(totals.comm_overlap_fraction or 0.0)} hidden by computing"
        out.append(_row("comm_exposed_s", _per_step(totals.comm_exposed_s), hidden, inner=True))
    tails = [step.allreduce_tail_s for step in rank.steps if step.allreduce_tail_s is not None]
    if tails:
        early_s = min(step.allreduce_early_s or 0.0 for step in rank.steps)
        note = f"the last one ended {duration(early_s)} before backward" if early_s else ""
        tail = _per_step(totals.allreduce_tail_s or 0.0)
        out.append(_row("allreduce_tail_s", tail, note, inner=True))
    return out


def _host(rank: RankTrace) -> list[Row]:
    parts = {
        "forward": _mean([step.forward_s for step in rank.steps]),
        "backward": _mean([step.backward_s for step in rank.steps]),
        "optimizer": _mean([step.optimizer_s for step in rank.steps]),
    }
    split = ", ".join(f"{name} {duration(s)}" for name, s in parts.items() if s is not None)
    out = []
    if rank.totals.cpu_op_s is not None:
        out.append(_row("cpu_op_s", _per_step(rank.totals.cpu_op_s), split))
    hole_s = _mean([step.hole_s for step in rank.steps])
    if hole_s is not None:
        device = ", GPU idle" if rank.device_worked else ""
        note = f"no operator, no device call{device}"
        out.append(_row("hole_s", _per_step(hole_s), note))
    if rank.memory_peak_bytes is not None:
        by = f"allocated by {rank.memory_peak_operator}" if rank.memory_peak_operator else ""
        out.append(_row("memory_peak_bytes", size(rank.memory_peak_bytes), by))
    return out


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None
