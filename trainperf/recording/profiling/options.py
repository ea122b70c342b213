"""Options of captures, the same for Lightning and plain loops."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainperf.core.errors import ConfigError
from trainperf.core.run_directory import TRACES
from trainperf.recording.guard import Guard
from trainperf.recording.probes.selection import FitObjects
from trainperf.recording.profiling.background_reader import PATIENCE_NS, Show, TraceWorker
from trainperf.recording.profiling.capture_schedule import (
    CapturePlan,
    CaptureRequest,
    CaptureSchedule,
    SlowSteps,
    demand_whole,
)
from trainperf.recording.profiling.profiler_probe import ProfilerProbe
from trainperf.recording.profiling.tracer import TraceFolder, TraceOptions
from trainperf.recording.sinks.tensorboard import PREFIX


log = logging.getLogger("trainperf")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRank:
    """The rank that captures, and where its traces go."""

    run: Path | None
    """The run directory."""
    rank: int
    world_size: int
    device: str
    """Type of the device the model is on."""
    offset: int = 0
    """Optimizer steps before this fit."""
    show: Show | None = None
    """Takes a step and key figures of a trace, for TensorBoard and other loggers."""

    @classmethod
    def of(
        cls, objects: FitObjects, run: Path | None, rank: int, show: Show | None = None
    ) -> "CaptureRank":
        """Of a loop with these objects."""
        device = objects.device.type
        return cls(run=run, rank=rank, world_size=objects.world_size, device=device, show=show)

    @property
    def first(self) -> Path | None:
        """The run directory on the rank that writes what is looked at once; else `None`."""
        return self.run if self.rank == 0 else None


# Not frozen: Lightning's callback has the same options, and a life of its own.
@dataclass(kw_only=True, eq=False)
class ScheduledProfile:
    """Which training steps are traced with `torch.profiler`, every cycle into a file of its own.

    Steps are optimizer steps, counted from the start of the fit; numbers in names and marks go on
    from a checkpoint.  Traces are in `traces/` of the run directory.  Traced steps are tagged and
    in no statistic; the time for writing a trace is a gap.

    Raises:
        ConfigError: A value is refused; the message says which and what to pass instead.
    """

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
    on_slow_step: float | None = None
    """Trace the steps after one that took so many times the steady median; `None` for none."""
    slow_captures: int = 3
    """Captures after slow steps at most, per rank."""
    analyse: bool = True
    """Whether a process of low priority reads each trace while training goes on."""

    def __post_init__(self) -> None:
        demand_whole("max_trace_bytes", self.max_trace_bytes, 1)
        demand_whole("max_traces", self.max_traces, 1)
        demand_whole("slow_captures", self.slow_captures, 1)
        self.ranks = _checked(self.ranks)
        self._plan = CaptureSchedule(
            skip_first=self.skip_first,
            wait=self.wait,
            warmup=self.warmup,
            active=self.active,
            repeat=self.repeat,
        )
        self._slow_steps()

    def probe(self, place: CaptureRank, guard: Guard) -> ProfilerProbe | None:
        """The probe that captures; `None` on a rank that shall not, or without a run directory."""
        if min(self.ranks) >= place.world_size:
            log.warning("trainperf: no captures: %s", self.beyond(place.world_size))
            return None
        if place.rank not in self.ranks:
            return None
        if place.run is None:
            log.warning("trainperf: no captures: there is no run directory to write them to")
            return None
        plan = CapturePlan(
            schedule=self._plan,
            options=self._options(place.device),
            offset=place.offset,
            request=self._request(place.run, place),
            slow=self._slow_steps(),
        )
        folder = TraceFolder(
            place.run / TRACES,
            rank=place.rank,
            max_bytes=self.max_trace_bytes,
            max_traces=self.max_traces,
        )
        return ProfilerProbe(plan, folder, guard, self._analyst(place))

    def beyond(self, world_size: int) -> str:
        """The sentence for ranks of which the job has none."""
        return f"ranks={self.ranks}: the last rank of this fit is {world_size - 1}; try ranks=(0,)"

    def _analyst(self, place: CaptureRank) -> TraceWorker | None:
        if not self.analyse:
            return None
        # Rank 0 reports on all ranks, and must not wait for what the others still read.
        return TraceWorker(place.show, PATIENCE_NS if place.rank == 0 else 0)

    def _options(self, device: str) -> TraceOptions:
        return TraceOptions(
            device=device,
            record_shapes=self.record_shapes,
            with_stack=self.with_stack,
            profile_memory=self.profile_memory,
        )

    def _request(self, run: Path, place: CaptureRank) -> CaptureRequest | None:
        if not self.on_demand:
            return None
        ranks = tuple(rank for rank in self.ranks if rank < place.world_size)
        return CaptureRequest(run, rank=place.rank, ranks=ranks)

    def _slow_steps(self) -> SlowSteps | None:
        if self.on_slow_step is None:
            return None
        return SlowSteps(self.on_slow_step, self.slow_captures)


def trace_scalars(figures: Mapping[str, float]) -> dict[str, float]:
    """Key figures of a trace under the tags they have in every logger."""
    return {f"{PREFIX}trace/{name}": value for name, value in figures.items()}


def _checked(ranks: tuple[int, ...]) -> tuple[int, ...]:
    chosen = tuple(ranks)
    if not chosen:
        raise ConfigError("ranks=(): must name at least one rank; try ranks=(0,)")
    for rank in chosen:
        demand_whole("ranks", rank, 0)
    return chosen
