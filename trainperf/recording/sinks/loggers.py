"""Sink for any logger that has Lightning's `log_metrics`."""

from collections.abc import Callable, Mapping, Sequence

from trainperf.core.steps.records import RunInfo
from trainperf.recording.sinks.base import MetricsLogger, Outputs, Sink
from trainperf.recording.sinks.tensorboard import ScalarSink, layout


def sink_for(outputs: Outputs) -> Sink | None:
    """One for all loggers, on the first rank."""
    if not outputs.loggers or outputs.step is None or outputs.rank != 0:
        return None
    return LoggerSink(outputs.loggers, outputs.step)


class LoggerSink(ScalarSink):
    """Logs readings as Python floats, one call per logger, straight to the loggers.

    Not through `LightningModule.log`: a progress-bar metric would be read from the device after
    every batch.  *step* is asked for the step number the user's own curves are drawn over.
    """

    name = "loggers"

    def __init__(self, loggers: Sequence[MetricsLogger], step: Callable[[], int]) -> None:
        self._loggers = list(loggers)
        self._step = step

    def begin(self, info: RunInfo) -> None:
        """Group the charts in loggers that are TensorBoard's."""
        super().begin(info)
        for logger in self._loggers:
            group = getattr(getattr(logger, "experiment", None), "add_custom_scalars", None)
            if callable(group):
                group(layout(info.world_size))

    def _write(self, values: Mapping[str, float], step: int) -> None:
        del step
        for logger in self._loggers if values else ():
            logger.log_metrics(dict(values), step=self._step())
