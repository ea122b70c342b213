"""Options of captures, the same for Lightning and plain loops."""

from dataclasses import dataclass
from pathlib import Path

from trainperf.core.errors import ConfigError


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
    """Optimizer steps before this fit: numbers in traces go on from there."""


# Not frozen: Lightning's callback has the same options, and a life of its own.
@dataclass(kw_only=True, eq=False)
class ScheduledProfile:
    """Which training steps are traced with `torch.profiler`, every cycle into a file of its own.

    Steps are optimizer steps, counted from the start of the fit as by `torch.profiler.schedule`;
    numbers in names and marks go on from a checkpoint.  Traces are in `traces/` of the run
    directory.  Traced steps are tagged and in no statistic; the time for writing a trace is a gap.

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
    analyse: bool = True
    """Whether a process of low priority reads each trace while training goes on."""

    def __post_init__(self) -> None:
        for name in ("skip_first", "wait", "repeat"):
            _demand_whole(name, getattr(self, name), 0)
        for name in ("warmup", "active", "max_trace_bytes", "max_traces"):
            _demand_whole(name, getattr(self, name), 1)
        self.ranks = tuple(self.ranks)
        if not self.ranks:
            raise ConfigError("ranks=(): must name at least one rank; try ranks=(0,)")
        for rank in self.ranks:
            _demand_whole("ranks", rank, 0)

    def begins(self, step: int) -> bool:
        """Whether the warm-up of a cycle begins with this step.  Runs every step."""
        since = step - self.skip_first
        number, within = divmod(since, self.wait + self.warmup + self.active)
        return within == self.wait and since >= 0 and (not self.repeat or number < self.repeat)

    def beyond(self, world_size: int) -> str:
        """The sentence for ranks of which the job has none."""
        return f"ranks={self.ranks}: the last rank of this fit is {world_size - 1}; try ranks=(0,)"


def _demand_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(
            f"{name}={value!r}: must be a whole number, at least {least}; try {name}={least}"
        )
