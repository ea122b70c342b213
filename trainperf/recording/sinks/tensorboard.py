"""Sink for a `SummaryWriter`, and the tags and charts that every logger is given."""

from collections.abc import Mapping

from trainperf.core.phases import PHASES
from trainperf.core.steps.records import RunInfo
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.base import Outputs, Sink, Writer


PREFIX = "trainperf/"


def prefix(ranks: int) -> str:
    """Where live readings go: on several ranks rank 0 knows only its own, and the tag says so."""
    return PREFIX if ranks == 1 else f"{PREFIX}rank0/"


LAYOUT = {
    "trainperf": {
        "step time (s)": ["Multiline", ["step_s", "step_p95_s", "step_p99_s"]],
        "where the step goes (s)": [
            "Multiline",
            [f"phase_{phase.label}_s" for phase in PHASES],
        ],
        "waiting for data": [
            "Multiline",
            ["data_wait_fraction", "data_wait_all_fraction", "data_stall_fraction"],
        ],
        "tokens per second": ["Multiline", ["effective_tokens_per_s", "padded_tokens_per_s"]],
        "padding and overflow": ["Multiline", ["padding_fraction", "overflow_rate"]],
        "all-reduce tail (s)": ["Multiline", ["allreduce_tail_s"]],
        "memory (bytes)": [
            "Multiline",
            ["memory_peak_bytes", "memory_reserved_peak_bytes", "resident_peak_bytes"],
        ],
        "trainperf overhead (s)": ["Multiline", ["overhead_s"]],
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
