"""What a sink is: it takes what there is to take, and every method does nothing by default."""

from collections.abc import Mapping, Sequence

from trainperf.core.steps.codec import Entry
from trainperf.core.steps.records import Row, RunInfo
from trainperf.meters.fold import Reading


class Sink:
    """Takes records, entries and readings.  Errors switch the sink off, never the training."""

    name = "sink"

    def begin(self, info: RunInfo) -> None:
        """The run is known."""

    def rows(self, rows: Sequence[Row]) -> None:
        """Finished steps, in order."""

    def entries(self, entries: Sequence[Entry]) -> None:
        """Gaps, totals and the end mark, in order."""

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """Readings of the last steps, up to *step*."""

    def flush(self) -> None:
        """Make what was taken visible to readers."""

    def close(self) -> None:
        """Nothing more comes."""
