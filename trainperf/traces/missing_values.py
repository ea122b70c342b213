"""Reasons for missing figures, and warnings about those that are there."""

import numpy as np

from trainperf.core.formatting.units import plural, share
from trainperf.traces.event_table import NONE, EventTable
from trainperf.traces.metrics.columns import StepColumns
from trainperf.traces.metrics.communication import DEVICE_COMM_FIELDS
from trainperf.traces.metrics.device import DeviceWork
from trainperf.traces.metrics.device_columns import DEVICE_FIELDS
from trainperf.traces.metrics.steps import OPTIMIZER_STEP, WINDOW, StepSpans


_NO_DEVICE = "no device in this trace"
_NONE_LAUNCHED = "no device event was launched inside a recorded step"
_SHARES = (
    "gpu_busy_fraction", "compute_fraction", "idle_data_wait_fraction", "idle_host_bound_fraction",
    "idle_sync_fraction", "idle_other_fraction", "unlaunched_fraction",
)  # fmt: skip
_DEVICE = (*DEVICE_FIELDS, *DEVICE_COMM_FIELDS, "data_wait_exposed_s", "sync_calls", "sync_s")

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

FEW = 0.001
"""Share of device events without a launch below which nothing is said."""


def reasons_of(
    table: EventTable, steps: StepSpans, device: DeviceWork, columns: StepColumns
) -> dict[str, str]:
    """For each field that is `None` in every step: why."""
    missing = [name for name, values in columns.items() if all(value is None for value in values)]
    out = {}
    for name in missing:
        if not len(device) and name in _DEVICE:
            out[name] = _NO_DEVICE
        elif not len(steps):
            out[name] = "no step in this trace"
        else:
            out[name] = _WHY.get(name, "not in this trace")
    if "gpu_busy_s" in out:
        out |= dict.fromkeys(_SHARES, out["gpu_busy_s"])
    elif not device.in_steps.any():
        out |= dict.fromkeys(_SHARES, _NONE_LAUNCHED)
    if not table.info.has_memory and not (table.total_bytes != NONE).any():
        out["memory_peak_bytes"] = "recorded without profile_memory"
    return out


def warnings_of(table: EventTable, steps: StepSpans, device: DeviceWork) -> tuple[str, ...]:
    """What a reader of the figures must know."""
    warnings = [*_losses(table), *_cut(steps, len(table) > 0)]
    if device.other_devices:
        others = plural(device.other_devices, "other device")
        warnings.append(f"{others} worked too: the figures are of the busiest one")
    unlaunched = float(np.mean(device.launch == NONE)) if len(device) else 0.0
    if unlaunched > FEW:
        warnings.append(
            f"{share(unlaunched)} of the device's events have no launch in the trace: they count "
            "as busy time, but belong to no step"
        )
    if len(device) and not device.in_steps.any():
        warnings.append(_NONE_LAUNCHED)
    return tuple(warnings)


def _losses(table: EventTable) -> list[str]:
    losses, warnings = table.losses, []
    if losses.truncated:
        warnings.append("the file is cut short: its complete events are used")
    if losses.dropped_events:
        warnings.append(f"{plural(losses.dropped_events, 'damaged event')} skipped")
    if losses.repaired_texts:
        warnings.append(f"the text of {plural(losses.repaired_texts, 'event')} was repaired")
    if losses.trailing:
        warnings.append("data after the end of the trace was not read")
    return warnings


def _cut(steps: StepSpans, events: bool) -> list[str]:  # noqa: FBT001 private, and one of two
    if not events:
        return ["no events in this trace"]
    if steps.source == OPTIMIZER_STEP:
        return ["no ProfilerStep marks: a step runs from one Optimizer.step's end to the next's"]
    if steps.source == WINDOW:
        return ["no step marks: the whole trace counts as one step"]
    return []
