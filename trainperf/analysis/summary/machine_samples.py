"""Samples of a machine, read: its hosts and devices while the fit ran."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.machine import MachineSeries
from trainperf.analysis.summary.schema import DeviceFacts, HostFacts
from trainperf.core.artifacts.machine import (
    HOST_COLUMNS,
    POWER_BRAKE_BIT,
    POWER_CAP_BIT,
    THERMAL_BITS,
    device_column,
)
from trainperf.core.steps.block import Column


Mask = npt.NDArray[np.bool_]


CLOCK_REASONS = {
    "thermal": THERMAL_BITS,
    "power brake": POWER_BRAKE_BIT,
    "power cap": POWER_CAP_BIT,
}


def others_cpus(series: MachineSeries) -> Column:
    """CPUs that were busy, and not with this training."""
    return np.maximum(series.column("cpu_busy") - series.column("cpu_own"), 0.0)


def clock_lowered(series: MachineSeries, device: int, reason: str) -> Mask:
    """Samples at which a device said that its clock was lower for a reason."""
    reasons = np.nan_to_num(series.device(device, "reasons")).astype(np.int64)
    lowered: Mask = (reasons & CLOCK_REASONS[reason]) != 0
    return lowered


def host_facts(attempts: Sequence[MachineSeries]) -> HostFacts:
    """One host over its attempts; what it is, and what it cannot tell, is that of the latest."""
    columns = {name: over_attempts(attempts, name) for name in HOST_COLUMNS if name != "sampler_s"}
    columns["others_cpus"] = np.concatenate([others_cpus(each) for each in attempts])
    sampled = {name: column[~np.isnan(column)] for name, column in columns.items()}
    sampled = {name: column for name, column in sampled.items() if len(column)}
    span_s = sum(each.span_s for each in attempts)
    sampler_s = sum(float(np.ptp(each.column("sampler_s"))) for each in attempts)
    header = attempts[-1].header
    return HostFacts(
        rank=header.rank,
        host=header.host,
        cpus=header.cpus,
        samples=sum(map(len, attempts)),
        span_s=span_s,
        sampler_cpus=sampler_s / span_s if span_s else None,
        means={name: float(column.mean()) for name, column in sampled.items()},
        worst={
            name: float(column.min() if name == "memory_free" else column.max())
            for name, column in sampled.items()
        },
        devices=tuple(_device(attempts, place) for place in range(len(header.devices))),
        reasons=header.reasons,
    )


def over_attempts(attempts: Sequence[MachineSeries], name: str) -> Column:
    """A column, one attempt after the other."""
    return np.concatenate([each.column(name) for each in attempts])


def _device(attempts: Sequence[MachineSeries], place: int) -> DeviceFacts:
    device = attempts[-1].header.devices[place]
    names = ("sm_mhz", "celsius", "power_w", "busy")
    clocks, heat, power, busy = (
        over_attempts(attempts, device_column(place, name)) for name in names
    )
    shares = {
        reason: float(np.concatenate([clock_lowered(s, place, reason) for s in attempts]).mean())
        for reason in CLOCK_REASONS
    }
    return DeviceFacts(
        name=device.name,
        sm_mhz=mean_sampled(clocks),
        least_mhz=None if np.isnan(clocks).all() else float(np.nanmin(clocks)),
        most_mhz=device.most_mhz,
        power_w=mean_sampled(power),
        limit_w=device.limit_w,
        celsius=mean_sampled(heat),
        hottest=None if np.isnan(heat).all() else float(np.nanmax(heat)),
        busy=mean_sampled(busy),
        throttled={reason: fraction for reason, fraction in shares.items() if fraction},
    )


def mean_sampled(column: Column) -> float | None:
    """Mean of what there is; `None` where there is nothing."""
    present = column[~np.isnan(column)]
    return float(present.mean()) if len(present) else None
