"""The callbacks that measure one thing each, to attach where `TrainPerf` is more than is wanted."""

from trainperf.lightning.callback import Measurement
from trainperf.meters import Measure
from trainperf.recording.probes.tokens import MaskFunction


class StepTimeMonitor(Measurement):
    """Step time alone: steady-state median, percentiles, phases, pauses."""

    measures = frozenset({Measure.STEP_TIME})


class DataWaitMonitor(Measurement):
    """Data wait and data stall alone."""

    measures = frozenset({Measure.DATA_WAIT})


class H2DMonitor(Measurement):
    """The batch transfer alone: time, bytes, rate."""

    measures = frozenset({Measure.H2D})


class GradScalerMonitor(Measurement):
    """The GradScaler alone: overflow rate and loss scale."""

    measures = frozenset({Measure.SCALER})


class TokenThroughputMonitor(Measurement):
    """Tokens and samples per second alone.

    Args:
        tokens: From a batch to a mask of shape (batch, tokens), where neither `attention_mask`
            nor `labels` tells which tokens count.
    """

    measures = frozenset({Measure.TOKENS})

    def __init__(self, *, tokens: MaskFunction | None = None) -> None:
        super().__init__()
        self.mask = tokens


class AllReduceTailMonitor(Measurement):
    """DDP's all-reduce tail alone."""

    measures = frozenset({Measure.TAIL})


class MemoryMonitor(Measurement):
    """Memory peaks alone."""

    measures = frozenset({Measure.MEMORY})
