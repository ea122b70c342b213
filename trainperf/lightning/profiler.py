"""Scheduled traces of a fit: attach it like any other measurement."""

import logging
from dataclasses import dataclass

import lightning.pytorch as pl
from lightning.pytorch.profilers import PyTorchProfiler

from trainperf import measures
from trainperf.capturing import CaptureRequest, CaptureSchedule, demand_whole
from trainperf.errors import ConfigError
from trainperf.lightning.callback import Measurement
from trainperf.lightning.relay import ProfilerRelay
from trainperf.lightning.session import Session
from trainperf.probes.base import Probe
from trainperf.profiler import ProfilerProbe
from trainperf.tracing import TraceFolder, TraceOptions


log = logging.getLogger("trainperf")


@dataclass(kw_only=True, eq=False)
class ScheduledProfiler(Measurement):
    """Traces some training steps with `torch.profiler`, every cycle into a file of its own.

    Steps are optimizer steps, counted from the start of the fit; numbers in names and marks go on
    from a checkpoint.  Traces are in `traces/` of the run directory.  Traced steps are tagged and
    in no statistic; the time for writing a trace is a gap.

    Raises:
        ConfigError: A value is refused, now or at the start of the fit; the message says which
            and what to do instead.
    """

    measures = frozenset({measures.STEP_TIME})

    skip_first: int = 0
    """Steps before the first cycle."""
    wait: int = 5
    """Steps of each cycle before anything happens."""
    warmup: int = 2
    """Steps of each cycle for the profiler to get going; at least 1."""
    active: int = 3
    """Steps of each cycle that are traced."""
    repeat: int = 1
    """Number of cycles; 0 for cycles until the fit ends."""
    ranks: tuple[int, ...] = (0,)
    """Ranks that trace."""
    record_shapes: bool = False
    """Shapes of operator inputs, too; holds on to tensors meanwhile."""
    with_stack: bool = False
    """Python stacks, too; slow, and large."""
    profile_memory: bool = False
    """Allocations, too."""
    max_trace_bytes: int = 128 * 2**20
    """A packed trace larger than this is thrown away."""
    max_traces: int = 20
    """Traces that one rank writes at most."""
    on_demand: bool = True
    """Whether touching `capture` in the run directory traces the next `active` steps."""

    def __post_init__(self) -> None:
        super().__init__()
        self._schedule = CaptureSchedule(
            skip_first=self.skip_first,
            wait=self.wait,
            warmup=self.warmup,
            active=self.active,
            repeat=self.repeat,
        )
        demand_whole("max_trace_bytes", self.max_trace_bytes, 1)
        demand_whole("max_traces", self.max_traces, 1)
        self.ranks = _checked(self.ranks)

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Refuse what cannot work before anything is measured."""
        if stage == "fit":
            self._demand_alone(trainer)
            if min(self.ranks) >= trainer.world_size:
                raise ConfigError(
                    f"ranks={self.ranks}: the last rank of this fit is {trainer.world_size - 1}; "
                    "try ranks=(0,)"
                )
        super().setup(trainer, pl_module, stage)

    def probes(self, session: Session, trainer: "pl.Trainer") -> list[Probe]:
        """The probe that captures, on the ranks that shall."""
        rank = trainer.global_rank
        if rank not in self.ranks:
            return []
        if session.run is None:
            log.warning("trainperf: no captures: there is no run directory to write them to")
            return []
        ranks = tuple(r for r in self.ranks if r < trainer.world_size)
        request = CaptureRequest(session.run, rank=rank, ranks=ranks) if self.on_demand else None
        options = TraceOptions(
            device=trainer.strategy.root_device.type,
            record_shapes=self.record_shapes,
            with_stack=self.with_stack,
            profile_memory=self.profile_memory,
        )
        folder = TraceFolder(
            session.run / "traces",
            rank=rank,
            max_bytes=self.max_trace_bytes,
            max_traces=self.max_traces,
        )
        guard, offset = session.monitor.guard, trainer.global_step
        return [
            ProfilerProbe(self._schedule, options, folder, guard, offset=offset, request=request)
        ]

    def _demand_alone(self, trainer: "pl.Trainer") -> None:
        theirs = trainer.profiler
        while isinstance(theirs, ProfilerRelay):
            theirs = theirs.inner
        if isinstance(theirs, PyTorchProfiler):
            raise ConfigError(
                f"Trainer(profiler={type(theirs).__name__}) beside ScheduledProfiler: torch has "
                "room for one profiler; take out the trainer's, ScheduledProfiler writes the "
                "same traces"
            )
        if sum(isinstance(c, ScheduledProfiler) for c in self._attached(trainer)) > 1:
            raise ConfigError(
                "two ScheduledProfilers on one trainer: torch has room for one profiler; attach "
                "one, with repeat=2 for two cycles"
            )


def _checked(ranks: tuple[int, ...]) -> tuple[int, ...]:
    chosen = tuple(ranks)
    if not chosen:
        raise ConfigError("ranks=(): must name at least one rank; try ranks=(0,)")
    for rank in chosen:
        demand_whole("ranks", rank, 0)
    return chosen
