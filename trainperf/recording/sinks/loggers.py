"""Sink that draws curves over steps: in a `SummaryWriter`, and in loggers with `log_metrics`.

And the outputs that a fit may have.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainperf.core.steps.records import RunInfo
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.base import MetricsLogger, Sink, Writer
from trainperf.recording.sinks.trackers import OpenTrackers


PREFIX = "trainperf/"
"""How the tags of all ranks' readings begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Where the numbers of one rank may go; what is not there is not written."""

    run: Path | None = None
    """The run directory."""
    rank: int = 0
    writer: Writer | None = None
    loggers: Sequence[MetricsLogger] = ()
    trackers: OpenTrackers | None = None
    """Of the runs that trackers have open; `None` where none is loaded."""
    step: Callable[[], int] | None = None
    """The step number that the user's own curves are drawn over; loggers need it."""


class CurveSink(Sink):
    """Draws a point of each reading that has a value, as a Python float.

    Not through `LightningModule.log`: a progress-bar metric would be read from the device after
    every batch.

    Args:
        outputs: A writer gets the number of the step in this fit; loggers and trackers get one call
            each, at the step that the user's own curves are drawn over.
    """

    name = "loggers"

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._prefix = PREFIX

    def begin(self, info: RunInfo) -> None:
        """On several ranks rank 0 knows only its own readings meanwhile, and their tag says so."""
        self._prefix = PREFIX if info.world_size == 1 else f"{PREFIX}rank0/"

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """One scalar per reading that has a value."""
        values = {
            f"{self._prefix}{name}": float(reading.value)
            for name, reading in readings.items()
            if reading.value is not None
        }
        outputs = self._outputs
        if outputs.writer is not None:
            for tag, value in values.items():
                outputs.writer.add_scalar(tag, value, step)
        trackers = () if outputs.trackers is None else (outputs.trackers,)
        for logger in (*outputs.loggers, *trackers) if values else ():
            logger.log_metrics(dict(values), step=outputs.step() if outputs.step else step)
