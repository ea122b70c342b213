"""The measurements, one file each, in display order.

To add one: a file that defines `METERS`, and its name here.
"""

from trainperf.core.families import load_members
from trainperf.meters.base import Measure, Meter, Scope


METERS: tuple[Meter, ...] = tuple(
    meter
    for meters in load_members(
        "trainperf.meters",
        (
            "step_time",
            "latency",
            "data_wait",
            "transfer",
            "phases",
            "throughput",
            "overflow",
            "allreduce",
            "host_bound",
            "memory",
            "pauses",
            "loss",
            "overhead",
        ),
        "METERS",
    )
    for meter in meters
)

__all__ = ["METERS", "Measure", "Meter", "Scope"]
