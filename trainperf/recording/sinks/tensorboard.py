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


def scalars(readings: Mapping[str, Reading], prefix: str = PREFIX) -> dict[str, float]:
    """Tags and values of the readings that have one."""
    return {
        f"{prefix}{name}": float(reading.value)
        for name, reading in readings.items()
        if reading.value is not None
    }


def sink_for(outputs: Outputs) -> Sink | None:
    """One for the writer, on the first rank."""
    if outputs.writer is None or outputs.rank != 0:
        return None
    return TensorBoardSink(outputs.writer)


class ScalarSink(Sink):
    """Base of sinks that draw curves over steps: each reading that has a value is a point."""

    _prefix = PREFIX

    def begin(self, info: RunInfo) -> None:
        """Several ranks' readings have tags of their own."""
        self._prefix = prefix(info.world_size)

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """One scalar per reading that has a value."""
        self._write(scalars(readings, self._prefix), step)

    def all_ranks(self, step: int, readings: Mapping[str, Reading]) -> None:
        """As `readings`, under tags of their own."""
        self._write(scalars(readings, f"{PREFIX}all_ranks/"), step)

    def _write(self, values: Mapping[str, float], step: int) -> None:
        raise NotImplementedError


class TensorBoardSink(ScalarSink):
    """Writes readings to a `SummaryWriter`."""

    name = "TensorBoard"

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def begin(self, info: RunInfo) -> None:
        """Group the charts."""
        super().begin(info)
        self._writer.add_custom_scalars(layout(info.world_size))

    def _write(self, values: Mapping[str, float], step: int) -> None:
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, step)
