"""What is a run made of?  Decided by an adapter, wired by the monitor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainperf.core.steps.records import RunInfo, Totals
from trainperf.meters import METERS, Meter
from trainperf.meters.fold import Reading
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.probes.base import Probe
from trainperf.recording.sinks.base import Sink


@dataclass(slots=True)
class Parts:
    """What a run is made of, decided by the adapter once model and optimizers exist."""

    info: RunInfo
    """Everything about the run except its columns."""
    probes: Sequence[Probe] = ()
    sinks: Sequence[Sink] = ()
    device: DeviceClock | None = None
    log_every: int = 50
    totals: Callable[[], Totals] | None = None
    """Completes the cumulative facts, e.g. with the time of each user hook."""
    first_answer: Callable[[dict[str, Reading]], None] | None = None
    """Called once, with the first readings after the warm-up."""
    meters: Sequence[Meter] = field(default=METERS)
