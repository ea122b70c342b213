"""Which measurements are there to ask for?  Each is the facts it needs and its readings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A measurement that can be attached by itself."""

    name: str
    facts: tuple[str, ...] = ()
    """Facts its probes feed."""
    readings: tuple[str, ...] = ()
    """Readings it logs; they may need no fact beyond host time."""


STEP_TIME = Measure(
    name="step time",
    facts=("gc_ns", "recompiles"),
    readings=(
        "step_s",
        "step_p95_s",
        "step_p99_s",
        "step_iqr_s",
        "step_mean_s",
        "first_step_s",
        "optimizer_steps_per_s",
        "phase_data_wait_s",
        "phase_h2d_s",
        "phase_forward_s",
        "phase_backward_s",
        "phase_optimizer_s",
        "phase_callbacks_s",
        "phase_loop_s",
        "phase_other_s",
        "gc_s",
        "recompiles",
    ),
)
DATA_WAIT = Measure(
    name="data wait",
    facts=("data_stall_ns", "lead_forward", "lead_backward"),
    readings=(
        "data_wait_fraction",
        "data_wait_all_fraction",
        "data_stall_fraction",
        "host_bound_fraction",
    ),
)
H2D = Measure(
    name="h2d",
    facts=("h2d_device_ns", "h2d_bytes", "h2d_tensors"),
    readings=("h2d_s", "h2d_bytes_per_s", "h2d_fraction", "h2d_bytes", "h2d_tensors"),
)
SCALER = Measure(
    name="grad scaler",
    facts=("attempts", "overflows", "loss_scale"),
    readings=("overflow_rate", "loss_scale"),
)
TOKENS = Measure(
    name="tokens",
    facts=("tokens_effective", "tokens_padded", "samples"),
    readings=(
        "effective_tokens_per_s",
        "padded_tokens_per_s",
        "padding_fraction",
        "samples_per_s",
    ),
)
TAIL = Measure(
    name="all-reduce tail",
    facts=("tail_ns",),
    readings=("allreduce_tail_s", "allreduce_tail_fraction"),
)
MEMORY = Measure(
    name="memory",
    facts=(
        "allocated_bytes",
        "reserved_bytes",
        "peak_bytes",
        "reserved_peak_bytes",
        "resident_bytes",
        "owned_bytes",
    ),
    readings=(
        "memory_peak_bytes",
        "memory_reserved_peak_bytes",
        "fragmentation_bytes",
        "resident_peak_bytes",
        "memory_slope_bytes_per_step",
    ),
)
LOSS = Measure(name="loss", facts=("loss",), readings=("loss",))

MEASURES = (STEP_TIME, DATA_WAIT, H2D, SCALER, TOKENS, TAIL, MEMORY, LOSS)
EVERYTHING = frozenset(MEASURES)

NOT_ASKED = "not asked for: attach TrainPerf() for every measurement"
