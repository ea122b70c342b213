"""Sink for any logger that has Lightning's `log_metrics`."""

from collections.abc import Callable, Mapping, Sequence

from trainperf.core.steps.records import RunInfo
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.base import MetricsLogger, Outputs, Sink
from trainperf.recording.sinks.tensorboard import layout, scalars, scalars_of_all_ranks


def sink_for(outputs: Outputs) -> Sink | None:
    """One for all loggers, on the first rank."""
    if not outputs.loggers or outputs.step is None or outputs.rank != 0:
        return None
    return LoggerSink(outputs.loggers, outputs.step)


class LoggerSink(Sink):
    """Logs readings as Python floats, straight to the loggers.

    Not through `LightningModule.log`: a progress-bar metric would be read from the device after
    every batch.  *step* is asked for the step number the user's own curves are drawn over.
    """

    name = "loggers"

    def __init__(self, loggers: Sequence[MetricsLogger], step: Callable[[], int]) -> None:
        self._loggers = list(loggers)
        self._step = step
        self._ranks = 1

    def begin(self, info: RunInfo) -> None:
        """Group the charts in loggers that are TensorBoard's."""
        self._ranks = info.world_size
        for logger in self._loggers:
            group = getattr(getattr(logger, "experiment", None), "add_custom_scalars", None)
            if callable(group):
                group(layout(self._ranks))

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """One call per logger."""
        self._log(scalars(readings, self._ranks))

    def all_ranks(self, step: int, readings: Mapping[str, Reading]) -> None:
        """As `readings`, under tags of their own."""
        del step
        self._log(scalars_of_all_ranks(readings))

    def _log(self, values: dict[str, float]) -> None:
        if not values:
            return
        for logger in self._loggers:
            logger.log_metrics(values, step=self._step())
