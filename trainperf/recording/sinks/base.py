"""Base of all sinks, which take what there is to take."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from trainperf.core.steps.codec import Entry
from trainperf.core.steps.records import Row, RunInfo
from trainperf.meters.fold import Reading


class Writer(Protocol):
    """What is used of `torch.utils.tensorboard.SummaryWriter`."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Write one value."""


class MetricsLogger(Protocol):
    """What is used of a Lightning logger."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Write values at a step."""


class Sink:
    """Takes records, entries and readings; every method does nothing by default.

    Called on every rank, between two steps of the loop: whatever takes longer belongs on a thread.
    An error switches the sink off, never the training.
    """

    name = "sink"
    """Unique among the sinks of a fit."""

    def begin(self, info: RunInfo) -> None:
        """The run is known."""

    def rows(self, rows: Sequence[Row]) -> None:
        """Finished steps, in order: core columns (`CORE_COLUMNS`), then the facts of the run."""

    def entries(self, entries: Sequence[Entry]) -> None:
        """Gaps, totals and the end mark, in order."""

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """Readings of the last steps, up to *step*, the number of a step in this fit."""

    def flush(self) -> None:
        """Make what was taken visible to readers."""

    def close(self) -> None:
        """Nothing more comes."""
