"""Sink for a `SummaryWriter`, and the tags and charts that every logger is given."""

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
from trainperf.core.steps.records import RunInfo
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.base import Outputs, Sink, Writer


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


def scalars(readings: Mapping[str, Reading], ranks: int = 1) -> dict[str, float]:
    """Tags and values of the readings that have one."""
    return {
        f"{prefix(ranks)}{name}": float(reading.value)
        for name, reading in readings.items()
        if reading.value is not None
    }


def scalars_of_all_ranks(readings: Mapping[str, Reading]) -> dict[str, float]:
    """Tags and values of live readings over all ranks; whole fits have `scalars`."""
    return {
        f"{PREFIX}all_ranks/{name}": float(reading.value)
        for name, reading in readings.items()
        if reading.value is not None
    }


def sink_for(outputs: Outputs) -> Sink | None:
    """One for the writer, on the first rank."""
    if outputs.writer is None or outputs.rank != 0:
        return None
    return TensorBoardSink(outputs.writer)


class TensorBoardSink(Sink):
    """Writes readings to a `SummaryWriter`."""

    name = "TensorBoard"

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._ranks = 1

    def begin(self, info: RunInfo) -> None:
        """Group the charts."""
        self._ranks = info.world_size
        self._writer.add_custom_scalars(layout(self._ranks))

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """One scalar per reading that has a value."""
        for tag, value in scalars(readings, self._ranks).items():
            self._writer.add_scalar(tag, value, step)

    def all_ranks(self, step: int, readings: Mapping[str, Reading]) -> None:
        """As `readings`, under tags of their own."""
        for tag, value in scalars_of_all_ranks(readings).items():
            self._writer.add_scalar(tag, value, step)
