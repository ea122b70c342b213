"""Results of analysing traces, as data: what `trainperf trace --format json` prints.

Times are seconds.  `None` is *not measured* or *does not apply*; `reasons` says which.  A device
event belongs to the step that launched it; shares are of the step's own time on the host clock.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from trainperf.core.findings import Finding


TRACE_VERSION = 1

PROFILER_STEP = "ProfilerStep"
"""What steps are cut by where the profiler has marked them."""


def mean(values: Sequence[float | None]) -> float | None:
    """Of those that were measured; `None` where none was."""
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None


class StepFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured of a step; of several the means, and fractions are quotients of sums."""

    step_s: float
    """On the host: from its mark to its end; of several steps the median."""
    gpu_busy_s: float | None = None
    data_wait_s: float | None = None
    """Host time in the loader."""
    data_wait_exposed_s: float | None = None
    """The part of it in which the device was idle."""
    h2d_s: float | None = None
    h2d_overlap_fraction: float | None = None
    """Share of `h2d_s` during which a compute kernel ran; `None` without copies."""
    d2h_s: float | None = None
    d2h_overlap_fraction: float | None = None
    comm_s: float | None = None
    comm_overlap_fraction: float | None = None
    comm_exposed_s: float | None = None
    """Communication during which no compute kernel ran."""
    allreduce_tail_s: float | None = None
    """From the last backward kernel's end to the last all-reduce's, at least 0; kernels only."""
    kernels: int | float | None = None
    sync_calls: int | float | None = None
    item_calls: int | float | None = None
    cpu_op_s: float | None = None
    """Union of operators on the host."""


class TraceStep(StepFigures, frozen=True, kw_only=True):
    """One step of one rank.

    Device times are unions over all streams of the work that the step launched; it may run behind
    the host's step by as much as the device lags.
    """

    step: int
    device_span_s: float | None = None
    """From the first to the last device event that the step launched."""
    gpu_idle_s: float | None = None
    """Of the device's own period: from the end of the earlier step's work to the end of its own."""
    idle_data_wait_s: float | None = None
    idle_host_bound_s: float | None = None
    """The next launch came after the device had nothing left to do."""
    idle_sync_s: float | None = None
    idle_other_s: float | None = None
    compute_s: float | None = None
    h2d_bytes: int | None = None
    d2h_bytes: int | None = None
    allreduce_early_s: float | None = None
    """By how much the last all-reduce ended before backward did; 0 when there is a tail."""
    allreduce_to_optimizer_s: float | None = None
    launches: int | None = None
    short_kernels: int | None = None
    """Kernels below 10 µs."""
    short_kernels_s: float | None = None
    tensor_core_fraction: float | None = None
    """Share of kernel time whose kernel's name sounds of tensor cores: a heuristic."""
    sync_s: float | None = None
    """Host time in synchronising calls."""
    forward_s: float | None = None
    """Host time; as are the next two."""
    backward_s: float | None = None
    optimizer_s: float | None = None
    hole_s: float | None = None
    """Time in which neither the host ran an operator or a runtime call nor the device worked."""


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator over the recorded steps of a rank."""

    name: str
    shapes: str | None = None
    calls: int
    self_device_s: float | None = None
    """Device time of what it launched itself, not its children."""
    self_cpu_s: float
    few_large: bool | None = None
    """Whether its device time comes from a few large kernels rather than many small ones."""


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels of one name over the recorded steps of a rank, communication among them."""

    name: str
    calls: int
    total_s: float
    fraction: float
    """Of the time of all kernels in these steps."""
    tensor_cores: bool
    """Whether its name sounds of tensor cores: a heuristic."""
    blocks_per_sm: float | None = None
    """The mean over time, as is the next; below 1 some multiprocessors have nothing to do."""
    occupancy_fraction: float | None = None
    """As the profiler estimates it."""


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of collective over the recorded steps of a rank."""

    kind: str
    count: int
    total_s: float
    exposed_s: float | None = None
    """Time during which one of this kind ran and no compute kernel; `None` on the host.

    Kinds that run at the same time share it: theirs may add up to more than `comm_exposed_s`.
    """
    bytes: int | None = None
    achieved_bytes_per_s: float | None = None
    bus_bytes_per_s: float | None = None
    """Achieved, times the share of the data that has to cross the slowest link."""
    many_small: bool = False


class ProcessGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Communication of one process group over the recorded steps of a rank.

    Sharding, tensor and data parallelism each have a group of their own: this tells them apart.
    """

    name: str
    """As torch numbers it; empty where the trace does not say."""
    members: int | None = None
    """Ranks in it."""
    count: int
    total_s: float
    exposed_s: float | None = None
    """Time during which a collective of this group ran and no compute kernel; `None` on the host.

    Groups that communicate at the same time share it, as kinds of collectives do.
    """


class SyncSite(msgspec.Struct, frozen=True, kw_only=True):
    """Where the host waited for the device."""

    call: str
    """E.g. `aten::item` or `cudaStreamSynchronize`."""
    count: int
    total_s: float
    stack: tuple[str, ...] = ()
    """Innermost Python frame first; empty where the trace has no stacks."""


class MemoryCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one device over the trace, by its allocator's own events."""

    device: int | None = None
    """Its number; `None` for the host."""
    at_s: tuple[float, ...]
    """In the trace, of each point: the begin of a stretch."""
    allocated_bytes: tuple[int, ...]
    """The most in each stretch."""
    reserved_bytes: tuple[int, ...] = ()
    """The same; empty where the trace does not say."""
    peak_bytes: int
    """The most that was allocated."""
    peak_s: float
    operators: tuple[str, ...] = ()
    """Those that ran at the peak, the innermost first."""
    stack: tuple[str, ...] = ()
    """Python frames at the peak, the innermost first; empty where the trace has no stacks."""


class TraceTotals(StepFigures, frozen=True, kw_only=True):
    """A mean step of a rank: over its recorded steps."""

    steps: int
    gpu_busy_fraction: float | None = None
    """Of the span of device work launched inside the recorded steps; as the next."""
    compute_fraction: float | None = None
    idle_data_wait_fraction: float | None = None
    idle_host_bound_fraction: float | None = None
    idle_sync_fraction: float | None = None
    idle_other_fraction: float | None = None
    unlaunched_fraction: float | None = None
    """Share of device events without a launch in the trace: in busy time, in no step."""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of one lane, for drawing: the many short ones are merged, the extremes kept."""

    start_s: float
    end_s: float
    name: str
    kind: str
    """`step`, `compute`, `communication`, `copy`, `idle`, `operator`, `loader`, `sync`."""


class TraceLane(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the picture: a stream of the device, or a thread of the host."""

    name: str
    slices: tuple[Slice, ...]


class RankTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One trace of one rank."""

    file: str
    """Its name, without the directory."""
    rank: int | None = None
    world_size: int | None = None
    device: str | None = None
    step_source: str = ""
    """What the steps were cut by: `ProfilerStep`, `Optimizer.step`, or `none` (one window)."""
    steps: tuple[TraceStep, ...] = ()
    totals: TraceTotals
    top_operators: tuple[Operator, ...] = ()
    """By self device time; by self CPU time without a device."""
    top_cpu_operators: tuple[Operator, ...] = ()
    top_kernels: tuple[Kernel, ...] = ()
    """Longest first."""
    collectives: tuple[Collective, ...] = ()
    process_groups: tuple[ProcessGroup, ...] = ()
    """Longest first."""
    sync_sites: tuple[SyncSite, ...] = ()
    memory_peak_bytes: int | None = None
    memory: tuple[MemoryCurve, ...] = ()
    """Of each device, that with the highest peak first; of the host without a device's."""
    lanes: tuple[TraceLane, ...] = ()
    reasons: dict[str, str] = {}
    """Field to the sentence that says why it is `None`."""
    warnings: tuple[str, ...] = ()
    """What must be said with the figures: losses, what steps were cut by, what is left out."""

    @property
    def device_worked(self) -> bool:
        """Whether a device did anything in the trace."""
        return any(step.gpu_busy_s is not None for step in self.steps)

    @property
    def host_step_s(self) -> float:
        """Mean time per step on the host."""
        return mean([step.step_s for step in self.steps]) or 0.0

    @property
    def period_s(self) -> float:
        """Mean time per step, on the host, or on the device where that is longer.

        A device that lags behind takes longer than the step marks on the host are apart.
        """
        return max(self.host_step_s, mean([step.device_span_s for step in self.steps]) or 0.0)


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """Who was waited for in a step; a second entry where another rank was about as late."""

    step: int
    rank: int
    """The rank that entered its collectives last, where that cost the others most."""
    wait_s: float
    """Longest wait of another rank for it."""
    point: str = ""
    """Where: `forward` or `backward` collectives, whichever cost more."""
    transfer_s: float
    """The collectives themselves: the least time any rank spent in each, summed."""


class TraceReport(msgspec.Struct, frozen=True, kw_only=True):
    """All ranks of one capture."""

    schema: int = TRACE_VERSION
    ranks: tuple[RankTrace, ...]
    stragglers: tuple[Straggler, ...] = ()
    warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Largest gain first."""
    answer: str = ""
    """One sentence: what the device does with its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisOptions:
    """How each trace is to be analysed."""

    lanes: bool = True
    """Whether to make the lanes for drawing."""
    steps: tuple[int | None, int | None] = (None, None)
    """Of a directory, the last capture that begins with one of these steps, both ends included."""


CollectiveKind = tuple[int, str, str]
"""Step number, process group and kind: the collectives of one are told apart by their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCollectives:
    """What one rank spent in each collective, to be compared with the others'."""

    spent_ns: Mapping[CollectiveKind, "array[int]"]
    """In the order of their start; type `q`."""
    backward: Mapping[CollectiveKind, bytes]
    """Which of them were asked for once backward had begun: 1 or 0 for each."""
    first: CollectiveKind | None
    """That of the first of the recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAnalysis:
    """What the analysis of one file gives."""

    trace: RankTrace
    collectives: RankCollectives
    began_ns: int = 0
    """When the trace begins, since 1970; 0 where it does not say."""
