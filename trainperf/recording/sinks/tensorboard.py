"""Tags and charts that TensorBoard and other loggers are given."""

from collections.abc import Mapping

from trainperf.core.phases import PHASES
from trainperf.core.readings import (
    ALLREDUCE_TAIL_S,
    DATA_STALL_FRACTION,
    DATA_WAIT_ALL_FRACTION,
    DATA_WAIT_FRACTION,
    EFFECTIVE_TOKENS_PER_S,
    MEMORY_PEAK_BYTES,
    MEMORY_RESERVED_PEAK_BYTES,
    OVERFLOW_RATE,
    OVERHEAD_S,
    PADDED_TOKENS_PER_S,
    PADDING_FRACTION,
    RESIDENT_PEAK_BYTES,
    STEP_P95_S,
    STEP_P99_S,
    STEP_S,
    phase_reading,
)
from trainperf.meters.fold import Reading


PREFIX = "trainperf/"


def prefix(ranks: int) -> str:
    """Where live readings go: on several ranks rank 0 knows only its own, and the tag says so."""
    return PREFIX if ranks == 1 else f"{PREFIX}rank0/"


LAYOUT = {
    "trainperf": {
        "step time (s)": ["Multiline", [STEP_S, STEP_P95_S, STEP_P99_S]],
        "where the step goes (s)": [
            "Multiline",
            [phase_reading(phase.label) for phase in PHASES],
        ],
        "waiting for data": [
            "Multiline",
            [DATA_WAIT_FRACTION, DATA_WAIT_ALL_FRACTION, DATA_STALL_FRACTION],
        ],
        "tokens per second": ["Multiline", [EFFECTIVE_TOKENS_PER_S, PADDED_TOKENS_PER_S]],
        "padding and overflow": ["Multiline", [PADDING_FRACTION, OVERFLOW_RATE]],
        "all-reduce tail (s)": ["Multiline", [ALLREDUCE_TAIL_S]],
        "memory (bytes)": [
            "Multiline",
            [MEMORY_PEAK_BYTES, MEMORY_RESERVED_PEAK_BYTES, RESIDENT_PEAK_BYTES],
        ],
        "trainperf overhead (s)": ["Multiline", [OVERHEAD_S]],
    }
}
"""Custom-scalars layout: chart titles to the readings each shows together."""


def layout(ranks: int = 1) -> dict[str, dict[str, list[object]]]:
    """The layout with full tags, as `SummaryWriter.add_custom_scalars` takes it."""
    return {
        group: {
            title: [kind, [f"{prefix(ranks)}{name}" for name in names]]
            for title, (kind, names) in charts.items()
        }
        for group, charts in LAYOUT.items()
    }


def scalars(readings: Mapping[str, Reading], prefix: str = PREFIX) -> dict[str, float]:
    """Tags and values of the readings that have one."""
    return {
        f"{prefix}{name}": float(reading.value)
        for name, reading in readings.items()
        if reading.value is not None
    }
