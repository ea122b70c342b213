"""Records of a fit: one per step and per gap, and the identity of the run.

Times are integer nanoseconds on the host's monotonic clock, counted from the start of the fit
(the run's only wall-clock time is `RunInfo.started_at`).  `None` means *not measured*.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from trainperf.core.launch_environment import TrialsOver
from trainperf.core.phases import PHASES


SCHEMA_VERSION = 1
"""Version of the run directory's files; see the changelog for what each version changed."""

EXACT_LENGTHS = 512
"""Sequence lengths that are counted one by one; of more, bins are counted."""
LENGTH_BIN = 16
"""Width of such a bin, in tokens."""

Scalar = str | int | float | bool | None
Row = Sequence[int | float | None]

CORE_COLUMNS = ("index", "start_ns", "tags", "micro_batches", *(f"{p.label}_ns" for p in PHASES))
START = CORE_COLUMNS.index("start_ns")
FIRST_PHASE = CORE_COLUMNS.index(f"{PHASES[0].label}_ns")
FIRST_FACT = len(CORE_COLUMNS)
"""Where the facts of a run begin."""


class StepFact(NamedTuple):
    """Something a probe can know about one step, beyond its host time."""

    unit: str
    meaning: str


FACTS: dict[str, StepFact] = {
    name: StepFact(unit, meaning)
    for name, unit, meaning in (
        (
            "data_stall_ns",
            "ns",
            (
                "device time between an event recorded just before the fetch and one just after "
                "it: what the device lost to the loader"
            ),
        ),
        ("h2d_device_ns", "ns", "device time between events around the copy"),
        ("h2d_bytes", "B", "bytes of the batch's tensors on the device"),
        ("h2d_tensors", "1", "number of tensors in the batch"),
        ("lead_forward", "1", "marks the device had not reached when forward returned"),
        ("lead_backward", "1", "marks the device had not reached when backward returned"),
        (
            "tail_ns",
            "ns",
            (
                "from the last gradient being ready to backward having returned, summed over the "
                "synchronising micro-batches"
            ),
        ),
        ("samples", "1", "leading dimension of the batch, this rank"),
        ("tokens_effective", "1", "sum of the mask, this rank"),
        ("tokens_padded", "1", "number of mask elements, this rank"),
        ("attempts", "1", "optimizer updates attempted under a GradScaler"),
        ("overflows", "1", "attempted updates that the scaler skipped"),
        ("loss_scale", "1", "the scaler's scale, read now and then"),
        ("loss", "1", "the last micro-batch's loss, this rank"),
        (
            "latency_ns",
            "ns",
            "in an inference loop: host time from a batch having come to `end_step`",
        ),
        ("allocated_bytes", "B", "device memory held by tensors after it"),
        ("reserved_bytes", "B", "device memory held by the allocator"),
        ("peak_bytes", "B", "highest allocated_bytes since process start"),
        ("reserved_peak_bytes", "B", "highest reserved_bytes since process start"),
        (
            "alloc_retries",
            "1",
            (
                "allocations that failed until the allocator had given its cache back to the "
                "device, since the reading before"
            ),
        ),
        ("alloc_failures", "1", "allocations that failed for good since the reading before"),
        (
            "device_allocs",
            "1",
            "times the allocator asked the driver for memory, since the reading before",
        ),
        ("device_used_bytes", "B", "memory of the device in use after it, whoever holds it"),
        ("resident_bytes", "B", "resident set of the process (CPU runs)"),
        (
            "owned_bytes",
            "B",
            (
                "memory of the process in use: what its C allocator has handed out, where glibc "
                "tells, else the resident set without mapped files (CPU runs on Linux)"
            ),
        ),
        (
            "cache_keys",
            "1",
            "distinct shapes of batches and graphs built so far: what fills caches (sampled)",
        ),
        ("gc_ns", "ns", "time the garbage collector ran inside the step"),
        ("recompiles", "1", "graphs torch.compile built inside the step"),
        (
            "pace_ns",
            "ns",
            "time of a small fixed piece of Python after it (earlier versions)",
        ),
        (
            "waited_ns",
            "ns",
            (
                "time the training thread was ready to run and had no processor, since the reading "
                "before (CPU runs on Linux)"
            ),
        ),
        ("overhead_ns", "ns", "what trainperf itself cost on the host"),
        (
            "mean_of_steps",
            "1",
            (
                "in an imported log: over how many steps the log has the mean that this step and "
                "the ones after it show; 0 in those; 1 where it has the step's own time"
            ),
        ),
    )
}


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One finished step: when, how long in each phase, why it is unusual, and the probes' facts."""

    index: int
    """Number of the step within this fit, from 0; an optimizer update, not a micro-batch."""
    start_ns: int
    """When the loop asked for the step's first batch, counted from the start of the fit."""
    tags: int = 0
    """Bits of `Tag`."""
    micro_batches: int = 1
    """Forward-backward passes in the step."""
    host_ns: tuple[int, ...]
    """Host time per phase, in the order of `Phase`; sums to the step's wall time."""
    facts: dict[str, int | float | None] = {}
    """Values of the facts in the run's columns."""

    @property
    def wall_ns(self) -> int:
        """Host time of the step, gaps cut out."""
        return sum(self.host_ns)

    @property
    def wall_s(self) -> float:
        """Host time of the step in seconds, gaps cut out."""
        return self.wall_ns / 1e9


class GapRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="gap"):
    """Time that belongs to no step.  A gap nested in another is not counted in the outer one."""

    gap: str
    start_ns: int
    duration_ns: int
    after_step: int
    """Index of the last step begun before the gap; -1 before the first."""


class RunIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a run was, as its records and its summary say it."""

    started_at: str = ""
    """Wall-clock time at which the fit began, ISO 8601 in UTC: an anchor, never used to measure."""
    world_size: int = 1
    device: str = "cpu"
    """Type of the device the model is on: `cpu`, `cuda`, …"""
    notes: dict[str, str] = {}
    """How some number was obtained, e.g. which mask was used; printed by reports."""
    software: dict[str, str] = {}
    hardware: dict[str, Scalar] = {}
    config: dict[str, Scalar] = {}
    """Parameters, precision, strategy, batch size, accumulation, loader settings, seed, …"""
    environment: dict[str, Scalar] = {}
    """Environment variables that change speed (`core.machine.surroundings` lists them), and on the
    first rank `git_commit` and `git_dirty` of the script."""
    continues: str = ""
    """Run directory this fit continues, if it was resumed and the earlier one is known."""


class RunInfo(RunIdentity, frozen=True, kw_only=True, tag_field="kind", tag="run"):
    """Line 1 of every record file."""

    schema: int = SCHEMA_VERSION
    rank: int = 0
    columns: tuple[str, ...] = ()
    """Facts in each step line after the core columns, in this order."""
    reasons: dict[str, str] = {}
    """Fact or reading name to the sentence that says why it cannot be measured in this run."""
    totals: dict[str, int] = {}
    """Steps, samples and tokens of earlier fits that this one continues."""
    prepared_s: float = 0.0
    """Wall time before the fit in which data was prepared, as far as anybody looked."""
    attempt: int = 0
    process: str = ""
    """Who wrote the file, as `core.machine.processes` names it; empty where that is unknown."""


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A meter's value now."""

    value: float | None
    unit: str
    n: int = 0
    """Steps the value stands on."""
    low: float | None = None
    high: float | None = None
    """Ends of a 95 % confidence interval, where one is known."""
    per_rank: tuple[float | None, ...] = ()
    reason: str | None = None
    """Why there is no value."""
    title: str = ""
    """Name for people, of a meter that has one."""
    better: str | None = None
    """`lower` or `higher`; said of a user's own meter only, others are in `METERS`."""


class OwnReading(Reading, frozen=True, kw_only=True, omit_defaults=True):
    """What a user's own meter says of all steps so far, on one rank.

    Written while the fit runs, because a report is made without the user's code.
    """

    value: float | None = None
    reduction: str = ""
    """Class of the statistic behind it, where *state* tells all of it."""
    state: tuple[float, ...] = ()
    """Its fields, in order: with them several ranks are combined as if they were one."""


class Totals(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="totals"):
    """Cumulative facts that belong to no single step; the last one in a file holds."""

    at_step: int
    actions_ns: dict[str, int] = {}
    """Exclusive host time of each user hook, by name."""
    threads_ns: dict[str, int] = {}
    """Processor time of each other thread of Python since the first step ended, by name."""
    sequence_lengths: dict[int, int] = {}
    """Effective length of a sequence in tokens (of many distinct ones the upper edge of a bin
    of 16) to how many there were."""
    longest_tokens: int = 0
    """Tokens with padding if each batch were as wide as its longest sequence; 0: not counted."""
    faults: dict[str, str] = {}
    """Parts of trainperf that were switched off after an error of their own, and the error."""
    dropped: dict[str, int] = {}
    """Measurements given up because a bounded buffer was full."""
    notes: dict[str, str] = {}
    """Notes learned while training: they complete `RunInfo.notes`."""
    reasons: dict[str, str] = {}
    """Reasons learned while training: they complete `RunInfo.reasons`."""
    config: dict[str, Scalar] = {}
    """Configuration seen while training, e.g. autocast: it completes `RunInfo.config`."""
    readings: dict[str, OwnReading] = {}
    """Of the user's own meters."""
    own: dict[str, int] = {}
    """Sums over the steady steps of what has no column: `steps`; `phase:NAME`, nanoseconds of a
    phase with a name of the loop's own, which are in `other` as well; `cpu:NAME`, processor time of
    the process in it, without other such phases; of a policy that generates `rollouts`, their
    `answers` and `tokens`, the `longest` and the `median` answer of each, in tokens (of a log the
    `mean` one); and `useless`, the answers per million from which nothing is learned, in `judged`
    reports of it."""
    contention: dict[str, int] = {}
    """What the host's CPUs were asked for while the fit ran, on Linux: `span_ns` from the first
    reading to the last; `ran_ns` that the training thread had a CPU, and `waited_ns` that it was
    ready to run and had none; the same of the loader's workers together (`workers_ran_ns`,
    `workers_waited_ns`); `kernel_ns` (of the kernel for the process, on any CPU), and, where there
    is a quota, `quota_periods` and `throttled_periods`, in which it was used up."""


FINISHED = "finished"
"""Reason of a fit that ended by itself."""

INTERRUPTED = "interrupted"
"""Reason of a fit that the user ended, e.g. with Ctrl-C."""

NOT_CLOSED = "not closed"
"""Reason of a fit that the process ended: no exception caused it."""


def ended_by(raised: type[BaseException] | None) -> str:
    """Reason of a fit in which this was raised; `None` for nothing."""
    if raised is None or issubclass(raised, TrialsOver):
        return FINISHED
    return INTERRUPTED if issubclass(raised, KeyboardInterrupt) else raised.__name__


class EndMark(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="end"):
    """Last line of a record file that was closed: how the fit ended and how long it took."""

    reason: str
    """`finished`, `interrupted`, or the exception's class name."""
    fit_ns: int
    """From the start of the fit to this line."""
    steps: int
