"""Breakdown of the mean step of a traced rank: a row for every figure, with its name and a note.

`LABELS` has the one name of each figure: rows, tables and the list of missing figures use it.
"""

from collections.abc import Callable

from trainperf.core.findings import LIMITS
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.units import count, duration, fine_share, share, size
from trainperf.core.machine.link import of_link
from trainperf.traces.results import RankTrace, mean


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


INNER = "  "

Row = tuple[str, str, str]
"""Name, value and what explains it."""
Say = Callable[[float], str]
Figure = tuple[str, float | None, Say, str, str]
"""Its field, value (`None`: it has no row) and words for that, what explains it, and its lead."""


def rows(rank: RankTrace) -> Table:
    """Where the mean step of one rank goes."""
    every = (*_device(rank), *_copies(rank), *_communication(rank), *_host(rank))
    shown = tuple(_row(*cells) for cells in every if cells[1] is not None)
    return Table(title="where the step goes", head=("", "", ""), rows=shown, end_words=1)


def missing_figures(rank: RankTrace) -> list[tuple[str, str]]:
    """What was not measured or does not apply, and why."""
    missed = [field for field in _MISSED if getattr(rank.totals, field) is None]
    missed += ["memory_peak_bytes"] if rank.memory_peak_bytes is None else []
    return [(LABELS[field], rank.reasons.get(field, "not measured")) for field in missed]


def _row(field: str, value: float | None, say: Say, note: str = "", lead: str = "") -> Row:
    """One of the table; with `INNER` as its *lead* a part of the row above."""
    return f"{lead}{LABELS[field]}", say(value or 0.0), note


def _per_step(seconds: float) -> str:
    return f"{duration(seconds)}/step"


def _device(rank: RankTrace) -> list[Figure]:
    """The median step, and what the device does in it."""
    totals = rank.totals
    median, mean = duration(totals.step_s), duration(rank.host_step_s)
    note = "median on the host" + (f"; mean {mean}" if mean != median else "")
    if rank.period_s > (1 + LIMITS.worth) * rank.host_step_s:
        note += f"; {duration(rank.period_s)} on the device"
    step: Figure = ("step_s", totals.step_s, duration, note, "")
    if totals.gpu_busy_fraction is None:
        return [step]
    busy = f"{_per_step(totals.gpu_busy_s or 0.0)}; of the span of the steps' GPU work"
    named = _mean(rank, "tensor_core_fraction")
    tensor = "" if named is None else f"{share(named)} in kernels named like tensor-core ones"
    notes = {
        "idle_data_wait_fraction": "the host is in the DataLoader",
        "idle_host_bound_fraction": _kernels(rank),
        "idle_sync_fraction": _syncs(rank),
        "idle_other_fraction": "the next work had been launched",
    }
    return [
        step,
        ("gpu_busy_fraction", totals.gpu_busy_fraction, fine_share, busy, ""),
        ("compute_fraction", totals.compute_fraction or 0.0, fine_share, tensor, INNER),
        ("gpu_idle_s", 1.0 - totals.gpu_busy_fraction, fine_share, "", ""),
        *((name, getattr(totals, name) or 0.0, fine_share, notes[name], INNER) for name in notes),
    ]


def _kernels(rank: RankTrace) -> str:
    short = sum(step.short_kernels or 0 for step in rank.steps)
    kernels = sum(step.kernels or 0 for step in rank.steps)
    few = f", {share(short / kernels)} of them below 10 µs" if kernels else ""
    return f"{count(round(rank.totals.kernels or 0.0))} kernels/step{few}"


def _syncs(rank: RankTrace) -> str:
    calls, items = rank.totals.sync_calls or 0.0, rank.totals.item_calls or 0.0
    waited = duration(_mean(rank, "sync_s") or 0.0)
    sentence = f"synchronising calls: {count(calls)}/step, {waited}; .item(): {count(items)}/step"
    return sentence if calls or items else ""


def _copies(rank: RankTrace) -> list[Figure]:
    """The wait for a batch, and its way to the device."""
    totals, moved = rank.totals, _mean(rank, "h2d_bytes")
    lost_s = totals.data_wait_exposed_s if totals.data_wait_s else None
    idle = "" if lost_s is None else f", {duration(lost_s)} of it with the GPU idle"
    timed = [(s.h2d_bytes, s.h2d_s) for s in rank.steps if s.h2d_bytes and s.h2d_s]
    copied, spent_s = (sum(pair[place] for pair in timed) for place in (0, 1))
    # Of the steps whose bytes are known, e.g. `2.00 GB/s, 3.1 % of the link's 64.0 GB/s`.
    speed = f" at {of_link(copied / spent_s, rank.device or '')}" if timed else ""
    much = "" if moved is None else f"{size(moved)}/step{speed}, "
    hidden = f"{share(totals.h2d_overlap_fraction or 0.0)} hidden by computing"
    return [
        ("data_wait_s", totals.data_wait_s, _per_step, f"in the DataLoader{idle}", ""),
        ("h2d_s", totals.h2d_s or None, _per_step, f"{much}{hidden}", ""),
    ]


def _communication(rank: RankTrace) -> list[Figure]:
    totals = rank.totals
    exposed_s, tail_s = totals.comm_exposed_s, totals.allreduce_tail_s
    early_s = min((step.allreduce_early_s or 0.0 for step in rank.steps), default=0.0)
    ended = f"the last one ended {duration(early_s)} before backward" if early_s else ""
    hidden = f"{share(totals.comm_overlap_fraction or 0.0)} hidden by computing"
    figures: list[Figure] = [
        ("comm_s", totals.comm_s, _per_step, "on the host" if exposed_s is None else "", ""),
        ("comm_exposed_s", exposed_s, _per_step, hidden, INNER),
        ("allreduce_tail_s", tail_s, _per_step, ended, INNER),
    ]
    return figures if totals.comm_s else []


def _host(rank: RankTrace) -> list[Figure]:
    parts = {name: _mean(rank, f"{name}_s") for name in ("forward", "backward", "optimizer")}
    split = ", ".join(f"{name} {duration(s)}" for name, s in parts.items() if s is not None)
    nothing = f"no operator, no device call{', GPU idle' if rank.device_worked else ''}"
    running = " ← ".join(rank.memory[0].operators) if rank.memory else ""
    at_peak = f"allocated by {running}" if running else ""
    return [
        ("cpu_op_s", rank.totals.cpu_op_s, _per_step, split, ""),
        ("hole_s", _mean(rank, "hole_s"), _per_step, nothing, ""),
        ("memory_peak_bytes", rank.memory_peak_bytes, size, at_peak, ""),
    ]


def _mean(rank: RankTrace, field: str) -> float | None:
    """Of the steps that have it."""
    return mean([getattr(step, field) for step in rank.steps])
