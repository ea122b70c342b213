"""Sink that draws curves over steps: in a `SummaryWriter`, and in loggers with `log_metrics`."""

from collections.abc import Callable, Mapping, Sequence

from trainperf.core.steps.records import RunInfo
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.base import MetricsLogger, Outputs, Sink, Writer


PREFIX = "trainperf/"
"""How the tags of all ranks' readings begin."""


def sink_for(outputs: Outputs) -> Sink | None:
    """One for the writer and all loggers, on the first rank."""
    if outputs.rank != 0 or not (outputs.writer or outputs.loggers or outputs.trackers):
        return None
    return curves(outputs)


def curves(outputs: Outputs) -> "CurveSink":
    """Everything that draws the curves of a fit."""
    trackers = (outputs.trackers,) if outputs.trackers else ()
    return CurveSink(outputs.writer, (*outputs.loggers, *trackers), outputs.step)


class CurveSink(Sink):
    """Draws a point of each reading that has a value, as a Python float.

    Not through `LightningModule.log`: a progress-bar metric would be read from the device after
    every batch.

    Args:
        writer: Gets the number of the step in this fit.
        loggers: Get one call each.
        step: Is asked for the step number that the user's own curves are drawn over, for loggers.
    """

    name = "loggers"

    def __init__(
        self,
        writer: Writer | None = None,
        loggers: Sequence[MetricsLogger] = (),
        step: Callable[[], int] | None = None,
    ) -> None:
        self._writer, self._loggers, self._step = writer, list(loggers), step
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
        if self._writer is not None:
            for tag, value in values.items():
                self._writer.add_scalar(tag, value, step)
        for logger in self._loggers if values else ():
            logger.log_metrics(dict(values), step=step if self._step is None else self._step())
