"""The callbacks that measure one thing each, to attach where `TrainPerf` is more than is wanted."""

from trainperf.lightning.callback import Measurement
from trainperf.recording import measurements
from trainperf.recording.probes.tokens import MaskFunction


class StepTimeMonitor(Measurement):
    """Step time alone: steady-state median, percentiles, phases, pauses."""

    measures = frozenset({measurements.STEP_TIME})


class DataWaitMonitor(Measurement):
    """Data wait and data stall alone."""

    measures = frozenset({measurements.DATA_WAIT})


class H2DMonitor(Measurement):
    """The batch transfer alone: time, bytes, rate."""

    measures = frozenset({measurements.H2D})


class GradScalerMonitor(Measurement):
    """The GradScaler alone: overflow rate and loss scale."""

    measures = frozenset({measurements.SCALER})


class TokenThroughputMonitor(Measurement):
    """Tokens and samples per second alone.

    Args:
        tokens: From a batch to a mask of shape (batch, tokens), where neither `attention_mask`
            nor `labels` tells which tokens count.
    """

    measures = frozenset({measurements.TOKENS})

    def __init__(self, *, tokens: MaskFunction | None = None) -> None:
        super().__init__()
        self.mask = tokens


class AllReduceTailMonitor(Measurement):
    """DDP's all-reduce tail alone."""

    measures = frozenset({measurements.TAIL})


class MemoryMonitor(Measurement):
    """Memory peaks alone."""

    measures = frozenset({measurements.MEMORY})
