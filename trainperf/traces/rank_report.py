"""The report of one trace: read, taken apart, measured and summed up."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec
import numpy as np

from trainperf.core.formatting.units import plural, share
from trainperf.core.paths import AnyPath
from trainperf.traces.event_table import NONE, EventTable, Kind
from trainperf.traces.lanes import lanes_of
from trainperf.traces.metrics.collectives import Collectives, collectives_of
from trainperf.traces.metrics.communication import (
    comm_columns,
    kinds,
    process_groups,
)
from trainperf.traces.metrics.device import (
    DeviceWork,
    StepColumns,
    Value,
    device_work,
    seconds,
)
from trainperf.traces.metrics.device_columns import (
    IdleSplit,
    device_columns,
    idle_split,
)
from trainperf.traces.metrics.host import (
    HostWork,
    host_columns,
    host_work,
    sync_columns,
    sync_sites,
)
from trainperf.traces.metrics.kernels import top_kernels
from trainperf.traces.metrics.memory import memory_curves
from trainperf.traces.metrics.operators import top_operators
from trainperf.traces.metrics.spans import (
    OPTIMIZER_STEP,
    WINDOW,
    Nest,
    StepSpans,
    clipped,
    find_steps,
    nest,
)
from trainperf.traces.reader import read
from trainperf.traces.results import (
    AnalysisOptions,
    RankAnalysis,
    RankTrace,
    TraceStep,
    TraceTotals,
    mean,
)
from trainperf.traces.stragglers import rank_collectives
from trainperf.traces.thresholds import THRESHOLDS


_NO_DEVICE = "no device in this trace"
_NO_MEMORY = (
    "recorded without profile_memory=True, an option of ScheduledProfiler and torch.profiler"
)
_MEMORY_OF_2021 = "its memory events, as those of 2021, do not say how much is allocated in all"
_NONE_LAUNCHED = "no device event was launched inside a recorded step"
_SHARES = (
    "gpu_busy_fraction", "compute_fraction", "idle_data_wait_fraction", "idle_host_bound_fraction",
    "idle_sync_fraction", "idle_other_fraction", "unlaunched_fraction",
)  # fmt: skip
_OF_HOST = (
    "step", "step_s", "data_wait_s", "cpu_op_s", "hole_s", "item_calls", "comm_s", "forward_s",
    "backward_s", "optimizer_s",
)  # fmt: skip
"""Fields of a step that need no device."""

_WHY = {
    "comm_s": "no communication kernel and no host collective in this trace",
    "comm_overlap_fraction": "no communication kernel in this trace",
    "comm_exposed_s": "collectives ran on the host: their exposed part is unknown",
    "allreduce_tail_s": "no all-reduce launched by backward",
    "allreduce_early_s": "no all-reduce launched by backward",
    "allreduce_to_optimizer_s": "no all-reduce launched by backward before an optimizer kernel",
    "h2d_overlap_fraction": "nothing was copied to the device",
    "h2d_bytes": "the trace does not record the bytes copied",
    "d2h_bytes": "the trace does not record the bytes copied",
    "d2h_overlap_fraction": "nothing was copied from the device",
    "tensor_core_fraction": "no compute kernel",
    "forward_s": "nothing in this trace marks forward",
    "backward_s": "nothing in this trace marks backward",
    "optimizer_s": "no Optimizer.step in this trace",
}


def reasons_of(
    table: EventTable, steps: StepSpans, device: DeviceWork, columns: StepColumns
) -> dict[str, str]:
    """For each field that is `None` in every step: why."""
    missing = [name for name, values in columns.items() if all(value is None for value in values)]
    why, otherwise = (_WHY, "not in this trace") if len(steps) else ({}, "no step in this trace")
    out = {name: why.get(name, otherwise) for name in missing}
    if not len(device):
        out |= {name: _NO_DEVICE for name in missing if name not in _OF_HOST}
    if "gpu_busy_s" in out:
        out |= dict.fromkeys(_SHARES, out["gpu_busy_s"])
    elif not device.in_steps.any():
        out |= dict.fromkeys(_SHARES, _NONE_LAUNCHED)
    if not (table.total_bytes != NONE).any():
        old = (table.kind == Kind.MEMORY).any()
        out["memory_peak_bytes"] = _MEMORY_OF_2021 if old else _NO_MEMORY
    return out


def warnings_of(table: EventTable, steps: StepSpans, device: DeviceWork) -> tuple[str, ...]:
    """What a reader of the figures must know."""
    losses, others = table.losses, device.other_devices
    unlaunched = float(np.mean(device.launch == NONE)) if len(device) else 0.0
    warnings: dict[str, object] = {
        "the file is cut short: its complete events are used": losses.truncated,
        f"{plural(losses.dropped_events, 'damaged event')} skipped": losses.dropped_events,
        f"the text of {plural(losses.repaired_texts, 'event')} was repaired": losses.repaired_texts,
        "data after the end of the trace was not read": losses.trailing,
        "no events in this trace": not len(table),
        "no ProfilerStep marks: a step runs from one Optimizer.step's end to the next's": len(table)
        and steps.source == OPTIMIZER_STEP,
        "no step marks: the whole trace counts as one step": len(table) and steps.source == WINDOW,
        f"{plural(others, 'other device')} worked too: the figures are of the busiest one": others,
        f"{share(unlaunched)} of the device's events have no launch in the trace: they count as "
        "busy time, but belong to no step": unlaunched > THRESHOLDS.unlaunched,
        _NONE_LAUNCHED: len(device) and not device.in_steps.any(),
    }
    return tuple(warning for warning, applies in warnings.items() if applies)


_RANK = re.compile(r"(?:^|[^a-z])rank[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
"""The rank in the name of a file, where the trace does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A trace taken apart: what every question is asked of."""

    table: EventTable
    steps: StepSpans
    device: DeviceWork
    host: HostWork
    forest: Nest
    """The operators."""
    idle: IdleSplit
    collectives: Collectives


def analyse_file(path: AnyPath, options: AnalysisOptions) -> RankAnalysis:
    """Read and analyse one file; raises `TraceError` if nothing of it can be used."""
    table = read(path)
    parts = take_apart(table)
    trace = summed_up(parts, path.name, lanes=options.lanes)
    rank_in_name = _RANK.search(path.name)
    if trace.rank is None and rank_in_name:
        trace = msgspec.structs.replace(trace, rank=int(rank_in_name[1]))
    compared = rank_collectives(table, parts.steps, parts.host, parts.collectives)
    return RankAnalysis(trace=trace, collectives=compared, began_ns=table.base_ns)


def analyse(table: EventTable, file: str, *, lanes: bool = True) -> RankTrace:
    """The trace of one rank, summed up.

    Args:
        table: Its events.
        file: The name to report it by.
        lanes: Whether to make the lanes for drawing.
    """
    return summed_up(take_apart(table), file, lanes=lanes)


def take_apart(table: EventTable) -> Parts:
    """The parts that all answers are made of."""
    steps = find_steps(table)
    device = device_work(table, steps)
    host = host_work(table, steps, device)
    return Parts(
        table=table,
        steps=steps,
        device=device,
        host=host,
        forest=nest(table, host.operators),
        idle=idle_split(table, steps, device, host),
        collectives=collectives_of(table, steps, device),
    )


def summed_up(parts: Parts, file: str, *, lanes: bool = True) -> RankTrace:
    """The answers."""
    table, steps, device, forest = parts.table, parts.steps, parts.device, parts.forest
    columns = step_columns(parts)
    by_device, by_cpu = top_operators(table, steps, device, forest)
    memory = memory_curves(table, forest)
    rows = ({name: column[at] for name, column in columns.items()} for at in range(len(steps)))
    return RankTrace(
        file=file,
        rank=table.info.rank,
        world_size=table.info.world_size,
        device=table.info.device if len(device) else None,
        step_source=steps.source,
        steps=tuple(msgspec.convert(row, TraceStep) for row in rows),
        totals=_totals(parts, columns),
        top_operators=by_device,
        top_cpu_operators=by_cpu,
        top_kernels=top_kernels(table, device),
        collectives=kinds(parts.collectives, len(steps), device.computing),
        process_groups=process_groups(parts.collectives, device.computing),
        sync_sites=sync_sites(table, parts.host, forest) if len(device) else (),
        memory_peak_bytes=memory[0].peak_bytes if memory else None,
        memory=memory,
        lanes=lanes_of(table, steps, device, parts.host, parts.idle) if lanes else (),
        reasons=reasons_of(table, steps, device, columns),
        warnings=warnings_of(table, steps, device),
    )


def step_columns(parts: Parts) -> StepColumns:
    """All fields of the steps, each as a column."""
    table, steps, device, host = parts.table, parts.steps, parts.device, parts.host
    worked = len(device) > 0
    return {
        **dict.fromkeys(TraceStep.__struct_fields__, [None] * len(steps)),
        "step": steps.number.tolist(),
        "step_s": seconds(steps.end - steps.start),
        **device_columns(table, steps, device, parts.idle),
        **host_columns(steps, host, device.busy if worked else None),
        **comm_columns(table, steps, device, host, parts.collectives),
        **sync_columns(table, steps, host, parts.forest, has_device=worked),
    }


def _totals(parts: Parts, columns: StepColumns) -> TraceTotals:
    step_s = [value for value in columns["step_s"] if value is not None]
    overlaps = {
        f"{what}_overlap_fraction": _weighted(
            columns[f"{what}_overlap_fraction"], columns[f"{what}_s"]
        )
        for what in ("h2d", "d2h", "comm")
    }
    values: dict[str, Value] = {
        "steps": len(parts.steps),
        "step_s": median(step_s) if step_s else 0.0,
        **{name: mean(columns[name]) for name in _MEANS},
        **overlaps,
        **_fractions(parts),
    }
    return msgspec.convert(values, TraceTotals)


_MEANS = (
    "data_wait_s", "data_wait_exposed_s", "h2d_s", "d2h_s", "comm_s", "comm_exposed_s",
    "allreduce_tail_s", "kernels", "sync_calls", "item_calls", "cpu_op_s", "gpu_busy_s",
)  # fmt: skip


def _weighted(shares: Sequence[Value], weights: Sequence[Value]) -> float | None:
    """A quotient of sums again: the shares by what they are shares of."""
    products = [
        (part * weight, weight)
        for part, weight in zip(shares, weights, strict=True)
        if part is not None and weight is not None
    ]
    whole = sum(weight for _, weight in products)
    return sum(part for part, _ in products) / whole if whole else None


def _fractions(parts: Parts) -> Mapping[str, float]:
    device, idle = parts.device, parts.idle
    bounds = device.spans(device.in_steps).bounds
    if bounds is None:
        return {}
    span = bounds[1] - bounds[0]
    return {
        "gpu_busy_fraction": clipped(device.busy, *bounds).total / span,
        "compute_fraction": clipped(device.computing, *bounds).total / span,
        "unlaunched_fraction": float(np.mean(device.launch == NONE)),
        **{f"idle_{cause}_fraction": int(ns.sum()) / span for cause, ns in idle.causes.items()},
    }
