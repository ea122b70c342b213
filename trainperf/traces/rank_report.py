"""What does the trace of one rank say?  Puts the answers of the single questions together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from trainperf.traces.event_table import NONE, EventTable
from trainperf.traces.lanes import lanes_of
from trainperf.traces.metrics.collectives import Collectives, collectives_of
from trainperf.traces.metrics.columns import (
    StepColumns,
    Value,
    by_step,
    median,
    not_measured,
    seconds,
)
from trainperf.traces.metrics.communication import comm_columns, kinds
from trainperf.traces.metrics.device import DeviceUse, DeviceWork, device_work
from trainperf.traces.metrics.host import HostWork, host_columns, host_work
from trainperf.traces.metrics.idle import IdleSplit, idle_split
from trainperf.traces.metrics.intervals import clipped
from trainperf.traces.metrics.kernels import kernel_columns
from trainperf.traces.metrics.links import Nest, nest
from trainperf.traces.metrics.memory import memory_peak
from trainperf.traces.metrics.operators import top_operators
from trainperf.traces.metrics.steps import StepSpans, find_steps
from trainperf.traces.metrics.syncs import sync_columns, sync_sites
from trainperf.traces.metrics.transfers import transfer_columns
from trainperf.traces.missing_values import reasons_of, warnings_of
from trainperf.traces.results import RankTrace, TraceStep, TraceTotals


_DEVICE_FIELDS = (
    "device_span_s", "gpu_busy_s", "gpu_idle_s", "idle_data_wait_s", "idle_host_bound_s",
    "idle_sync_s", "idle_other_s", "compute_s", "h2d_s", "h2d_bytes", "h2d_overlap_fraction",
    "d2h_s", "d2h_bytes", "d2h_overlap_fraction", "kernels", "launches", "short_kernels",
    "short_kernels_s", "tensor_core_fraction",
)  # fmt: skip


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
    peak_bytes, peak_operator = memory_peak(table, forest)
    return RankTrace(
        file=file,
        rank=table.info.rank,
        world_size=table.info.world_size,
        device=table.info.device if len(device) else None,
        step_source=steps.source,
        steps=_steps(columns, len(steps)),
        totals=_totals(parts, columns),
        top_operators=by_device,
        top_cpu_operators=by_cpu,
        collectives=kinds(parts.collectives, len(steps), device.computing),
        sync_sites=sync_sites(table, parts.host, forest) if len(device) else (),
        memory_peak_bytes=peak_bytes,
        memory_peak_operator=peak_operator,
        lanes=lanes_of(table, steps, device, parts.host, parts.idle) if lanes else (),
        reasons=reasons_of(table, steps, device, columns),
        warnings=warnings_of(table, steps, device),
    )


def step_columns(parts: Parts) -> StepColumns:
    """All fields of the steps, each as a column."""
    table, steps, device, host = parts.table, parts.steps, parts.device, parts.host
    worked = len(device) > 0
    return {
        "step": steps.number.tolist(),
        "step_s": seconds(steps.end - steps.start),
        **(_device_columns(parts) if worked else not_measured(_DEVICE_FIELDS, len(steps))),
        **host_columns(steps, host, device.busy if worked else None),
        **comm_columns(table, steps, device, host, parts.collectives),
        **sync_columns(table, steps, host, parts.forest, has_device=worked),
    }


def _device_columns(parts: Parts) -> StepColumns:
    steps, device, idle = parts.steps, parts.device, parts.idle
    count = len(steps)
    spans = by_step(device, device.in_steps, count)
    compute = by_step(device, device.kernel & device.used_for(DeviceUse.COMPUTE), count)
    bounds = [one.bounds for one in spans]
    return {
        "device_span_s": [(one[1] - one[0]) / 1e9 if one else None for one in bounds],
        "gpu_busy_s": seconds([one.total for one in spans]),
        "gpu_idle_s": seconds(idle.total),
        "idle_data_wait_s": seconds(idle.data_wait),
        "idle_host_bound_s": seconds(idle.host_bound),
        "idle_sync_s": seconds(idle.sync),
        "idle_other_s": seconds(idle.other),
        "compute_s": seconds([one.total for one in compute]),
        **transfer_columns(parts.table, device, count),
        **kernel_columns(parts.table, steps, device),
    }


def _steps(columns: StepColumns, count: int) -> tuple[TraceStep, ...]:
    rows = [{name: column[place] for name, column in columns.items()} for place in range(count)]
    return tuple(msgspec.convert(row, TraceStep) for row in rows)


def _totals(parts: Parts, columns: StepColumns) -> TraceTotals:
    step_s = [value for value in columns["step_s"] if value is not None]
    means = {name: _mean(columns[name]) for name in _MEANS}
    overlaps = {
        f"{what}_overlap_fraction": _weighted(
            columns[f"{what}_overlap_fraction"], columns[f"{what}_s"]
        )
        for what in ("h2d", "d2h", "comm")
    }
    found: dict[str, Value] = {
        "steps": len(parts.steps),
        "step_s": median(step_s) if step_s else 0.0,
        **means,
        **overlaps,
        **_fractions(parts),
    }
    return msgspec.convert(found, TraceTotals)


_MEANS = (
    "data_wait_s", "data_wait_exposed_s", "h2d_s", "d2h_s", "comm_s", "comm_exposed_s",
    "allreduce_tail_s", "kernels", "sync_calls", "item_calls", "cpu_op_s", "gpu_busy_s",
)  # fmt: skip


def _mean(values: Sequence[Value]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _weighted(shares: Sequence[Value], weights: Sequence[Value]) -> float | None:
    """A quotient of sums again: the shares by what they are shares of."""
    known = [
        (part * weight, weight)
        for part, weight in zip(shares, weights, strict=True)
        if part is not None and weight is not None
    ]
    whole = sum(weight for _, weight in known)
    return sum(part for part, _ in known) / whole if whole else None


def _fractions(parts: Parts) -> Mapping[str, float]:
    device, idle = parts.device, parts.idle
    bounds = device.spans(device.in_steps).bounds
    if bounds is None:
        return {}
    span = bounds[1] - bounds[0]
    causes = {
        "idle_data_wait_fraction": idle.data_wait,
        "idle_host_bound_fraction": idle.host_bound,
        "idle_sync_fraction": idle.sync,
        "idle_other_fraction": idle.other,
    }
    return {
        "gpu_busy_fraction": clipped(device.busy, *bounds).total / span,
        "compute_fraction": clipped(device.computing, *bounds).total / span,
        "unlaunched_fraction": float(np.mean(device.launch == NONE)),
        **{name: int(part.sum()) / span for name, part in causes.items()},
    }
