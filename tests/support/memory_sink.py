"""A sink that keeps everything in memory."""

from collections.abc import Mapping, Sequence

from support.blocks import records_of

from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.codec import Entry
from trainperf.core.steps.records import Row, RunInfo, StepRecord
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.base import Sink


class MemorySink(Sink):
    """Holds records, entries and readings as lists.  Grows without bound: not for long runs."""

    name = "memory sink"

    def __init__(self) -> None:
        self.info = RunInfo()
        self.step_rows: list[Row] = []
        self.all_entries: list[Entry] = []
        self.shown: list[tuple[int, dict[str, Reading]]] = []
        self.closed = False

    def begin(self, info: RunInfo) -> None:
        """Keep the run's identity."""
        self.info = info

    def rows(self, rows: Sequence[Row]) -> None:
        """Keep steps."""
        self.step_rows.extend(rows)

    def entries(self, entries: Sequence[Entry]) -> None:
        """Keep gaps, totals and the end mark."""
        self.all_entries.extend(entries)

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """Keep readings."""
        self.shown.append((step, dict(readings)))

    def close(self) -> None:
        """Keep that it was closed."""
        self.closed = True

    @property
    def records(self) -> list[StepRecord]:
        """The steps as records."""
        schema = StepSchema(self.info.columns, self.info.device)
        return records_of(StepBlock.from_rows(schema, self.step_rows))
