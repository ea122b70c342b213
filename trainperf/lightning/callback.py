"""Callbacks that measure a fit: everything of it, or one thing each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from trainperf.lightning.measurement import Measurement
from trainperf.loop.options import FitOptions
from trainperf.meters import Measure
from trainperf.recording.probes.selection import EVERYTHING
from trainperf.recording.probes.tokens import MaskFunction, demand_mask


@dataclass(kw_only=True, eq=False, repr=False)
class TrainPerf(FitOptions, Measurement):
    """Measures everything that applies to the fit it is attached to.

    Takes the options of every fit: `trainperf.loop.FitOptions`.

    Raises:
        ConfigError: A value is refused; the message says which and what to pass instead.
    """

    measures = EVERYTHING

    def __post_init__(self) -> None:
        super().__post_init__()
        Measurement.__init__(self)

    def state_dict(self) -> dict[str, Any]:
        """Totals so far; no clock values.  Written into checkpoints."""
        return self.session.state() if self.session is not None else dict(self._restored)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Totals of the fit that a resumed one continues."""
        if isinstance(state_dict, Mapping):
            self._restored = dict(state_dict)


class AutoTrainPerf(TrainPerf):
    """The callback of `trainperf run`; where the script has a `TrainPerf` too, that one leads."""

    defers_to_others = True

    @property
    @override
    def state_key(self) -> str:
        """Different from that of `TrainPerf`: Lightning refuses two callbacks of one key."""
        return "trainperf run"


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
        demand_mask(tokens)
        self.tokens = tokens


class AllReduceTailMonitor(Measurement):
    """DDP's all-reduce tail alone."""

    measures = frozenset({Measure.TAIL})


class MemoryMonitor(Measurement):
    """Memory peaks alone."""

    measures = frozenset({Measure.MEMORY})
