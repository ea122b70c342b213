"""Names of the readings, as `summary.json`, the loggers' tags and the reports have them.

Whoever looks a reading up names it by its constant, so that a typo is an error and never reads as
*not measured*.  What each is, `trainperf.meters` says.
"""

from collections.abc import Mapping
from typing import TypeVar

from trainperf.core.phases import PHASES


STEP_S = "step_s"
STEP_P95_S = "step_p95_s"
STEP_P99_S = "step_p99_s"
STEP_IQR_S = "step_iqr_s"
STEP_MEAN_S = "step_mean_s"
FIRST_STEP_S = "first_step_s"
LATENCY_S = "latency_s"
DATA_WAIT_FRACTION = "data_wait_fraction"
DATA_WAIT_ALL_FRACTION = "data_wait_all_fraction"
DATA_STALL_FRACTION = "data_stall_fraction"
H2D_S = "h2d_s"
H2D_BYTES_PER_S = "h2d_bytes_per_s"
H2D_FRACTION = "h2d_fraction"
H2D_BYTES = "h2d_bytes"
H2D_TENSORS = "h2d_tensors"
EFFECTIVE_TOKENS_PER_S = "effective_tokens_per_s"
PADDED_TOKENS_PER_S = "padded_tokens_per_s"
PADDING_FRACTION = "padding_fraction"
SAMPLES_PER_S = "samples_per_s"
OPTIMIZER_STEPS_PER_S = "optimizer_steps_per_s"
OVERFLOW_RATE = "overflow_rate"
LOSS_SCALE = "loss_scale"
ALLREDUCE_TAIL_S = "allreduce_tail_s"
ALLREDUCE_TAIL_FRACTION = "allreduce_tail_fraction"
HOST_BOUND_FRACTION = "host_bound_fraction"
MEMORY_PEAK_BYTES = "memory_peak_bytes"
MEMORY_RESERVED_PEAK_BYTES = "memory_reserved_peak_bytes"
FRAGMENTATION_BYTES = "fragmentation_bytes"
RESIDENT_PEAK_BYTES = "resident_peak_bytes"
MEMORY_SLOPE_BYTES_PER_STEP = "memory_slope_bytes_per_step"
ALLOC_RETRIES = "alloc_retries"
DEVICE_ALLOCS = "device_allocs"
GC_S = "gc_s"
RECOMPILES = "recompiles"
LOSS = "loss"
OVERHEAD_S = "overhead_s"
ALLREDUCE_SKEW_S = "allreduce_skew_s"
FLOPS_PER_S = "flops_per_s"
MFU = "mfu"
HFU = "hfu"

_OF_PHASES = {phase.label: f"phase_{phase.label}_s" for phase in PHASES}

NAMES = frozenset(
    value for name, value in globals().items() if name.isupper() and isinstance(value, str)
) | frozenset(_OF_PHASES.values())
"""All of the above, and those of the other phases."""

R = TypeVar("R")


def phase_reading(label: str) -> str:
    """Name of the reading of one phase.

    Raises:
        KeyError: There is no such phase.
    """
    return _OF_PHASES[label]


def find(readings: Mapping[str, R], name: str) -> R | None:
    """A reading among those of a run; `None` in a run of a release that did not have it.

    Raises:
        KeyError: No release has it, and neither has the run.
    """
    reading = readings.get(name)
    if reading is None and name not in NAMES:
        raise KeyError(f"{name!r}: no such reading; the names are in trainperf.core.readings")
    return reading
