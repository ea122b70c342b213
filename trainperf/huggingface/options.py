"""Options of a training under measurement, and a fit that has begun."""

from dataclasses import dataclass, field

from trainperf.core.launch_environment import AuditPlan
from trainperf.core.machine.clocks import wall_clock_anchor
from trainperf.core.places import AnyPath
from trainperf.huggingface.trials import DisposableRun
from trainperf.recording.extensions import Extensions
from trainperf.recording.monitor import Monitor
from trainperf.recording.probes.tokens import MaskFunction
from trainperf.trials import TrialOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackOptions:
    """What the user asked the callback for."""

    tokens: MaskFunction | None
    dirpath: AnyPath | None
    log_every: int | None
    report: bool
    lines: bool
    machine: bool = True
    audit: AuditPlan | None
    loader_anatomy: bool
    extensions: Extensions
    trials: TrialOptions | None
    """What is tried, in a process that ends with it."""
    thrown_away: DisposableRun


@dataclass(frozen=True, slots=True)
class EarlyStart:
    """A fit that has begun: what is done from now to the first batch is its startup."""

    monitor: Monitor = field(default_factory=Monitor)
    at: str = field(default_factory=wall_clock_anchor)
