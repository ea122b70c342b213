"""Contents of `summary.json`: what is known about a run once it has been read.

Plain data in SI units, made by `trainperf.analysis.summarize`, judged by
`trainperf.analysis.rules`, shown by `trainperf.reports`.  `None` means *not measured*; a reading
without a value says why.
"""

from typing import Literal

import msgspec

from trainperf.analysis.roofline.speed_of_light import SpeedOfLight
from trainperf.analysis.roofline.time_split import Dimensions
from trainperf.core.artifacts.compilation import Compilation
from trainperf.core.artifacts.loader import LoaderAnatomy
from trainperf.core.artifacts.memory import MemoryLedger
from trainperf.core.artifacts.trials import Trials
from trainperf.core.findings import Decision, Finding, Ordinary
from trainperf.core.loop_kind import LoopKind, loop_of
from trainperf.core.phases import PHASES
from trainperf.core.readings import find, phase_reading
from trainperf.core.steps.records import SCHEMA_VERSION, Scalar
from trainperf.meters.fold import Reading, not_covered


MOST_RANKS = 8
"""Of many, so many are named in a sentence, or drawn as lines of a chart."""

State = Literal["finished", "interrupted", "failed", "running", "killed"]
RankState = Literal[State, "silent"]


class RankEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a rank ended, or that it has not."""

    rank: int
    host: str
    """Name of its host; empty where it is not known."""
    state: RankState
    """`silent`: no end mark, and no line for longer than the others; its process may be stopped, or
    wait."""
    reason: str | None
    """Class name of the exception that ended it."""
    steps: int
    """That it recorded."""
    silent_s: float | None = None


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Who the run was, how far it came and how it ended."""

    path: str
    name: str
    state: State
    """The lowest rank's.  `running` and `killed` both lack an end mark; the process, or the time
    of the last write, tells them apart; while one rank runs, the run does."""
    end_reason: str | None
    """Class name of the exception that ended the fit, or `NOT_CLOSED`."""
    started_at: str
    attempts: int
    continues: str
    ranks: tuple[int, ...]
    """Ranks whose files were read; the order of every `per_rank`."""
    world_size: int
    device: str
    steps: int
    """Steps that every rank of their attempt recorded: the readings stand on them."""
    steady_steps: int
    left_out_steps: int
    """Steps that only some ranks recorded."""
    unread_steps: int = 0
    """Of a run of days: steps that evenly spaced stretches of others stand for."""
    window: str = ""
    """What was asked for of the run, e.g. `steps 10,000-20,000`; empty for all of it."""
    fit_s: float
    """Host time of the fit on the lowest rank; up to the last line while it is running."""
    earlier: dict[str, int]
    """Steps, samples and tokens of earlier fits that this one continues."""
    software: dict[str, str]
    hardware: dict[str, Scalar]
    config: dict[str, Scalar]
    notes: dict[str, str]
    faults: dict[str, str]
    dropped: dict[str, int]
    environment: dict[str, Scalar] = {}
    """Environment variables that change speed, and the script's version."""
    ended_otherwise: tuple[RankEnd, ...] = ()
    """Ranks of the latest attempt that ended otherwise than the run, or with fewer steps."""

    @property
    def loop(self) -> LoopKind:
        """The kind of loop that trained, and what it calls things."""
        return loop_of(self.config)


class HostShare(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank has of its host's CPUs, on the rank that has least, and what it asks of them."""

    rank: int
    host: str
    """Name of its host; empty where it is not known."""
    ranks: int
    """Ranks on that host; where nothing tells, all of them."""
    cpus_per_rank: float
    """Of its own, by masks, quotas and the number of ranks; below 1 if there are fewer CPUs."""
    threads: int
    """That compute: of a model on the CPU those of torch, on a device the one that launches."""
    workers: int
    """Of the rank's loader."""
    waited_fraction: float | None = None
    """Share of the time for which a training thread was ready to run and had no CPU; of the rank
    where it is largest, as all that follow.  `None` where the system does not count it."""
    ran_fraction: float | None = None
    """Share for which it had one; of the rank where it is smallest."""
    workers_waited_fraction: float | None = None
    """Of the time for which a loader's workers were ready to run; `None` without workers."""
    workers_ran: float | None = None
    """CPUs that a loader's workers used together, in the mean; `None` without workers."""
    throttled_fraction: float | None = None
    """Of the periods of a quota those in which it was used up; `None` without a quota."""
    preemptions_per_s: float | None = None
    """Involuntary context switches of a rank's process."""

    @property
    def demand(self) -> int:
        """Threads and workers of a rank: CPUs that it can keep busy."""
        return self.threads + self.workers


class CaptureAftermath(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of profiled steps, and whether the steps after it are as fast as those before.

    Medians over up to fifty steady steps on either side, the slowest rank's wall time.
    """

    first_step: int
    last_step: int
    before_s: float | None
    after_s: float | None
    ratio: float | None
    """`after_s` over `before_s`."""
    slower: bool
    """More than 5 % slower afterwards, and the middle halves of the steps do not overlap."""


class TracedDuration(msgspec.Struct, frozen=True, kw_only=True):
    """One duration of the same steps in the records and in their trace: medians per step."""

    name: str
    """`step`, `data_wait` or `allreduce_tail`."""
    recorded_s: float
    traced_s: float
    agree: bool
    """Within 5 % of the larger one, or within 1 % of the step."""


class TracedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """A trace's answer, and whether the records agree with it on those steps."""

    file: str
    rank: int
    first_step: int
    """In the records of this fit."""
    steps: int
    answer: str
    """One sentence, of all ranks that were read together."""
    comm_exposed_s: float | None
    """Of a step: communication that no computation hides, to read with the all-reduce tail."""
    compared: tuple[TracedDuration, ...]


WhoIsLate = Literal["same", "rotating", "nobody", "too_few_steps", ""]
"""Always the same ranks, now this one and now that one, none in most steps; or too few steps to
tell.  Empty in a summary of a release that did not say."""


class LateRank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that the others wait for again and again at one point."""

    rank: int
    late_s: float
    """Median time it comes after the typical other rank; with others like it, of all of them."""
    cause: str | None
    """Phase in which it spends the largest part of that; `None` when none explains it."""
    cause_s: float | None
    """Mean excess of that phase over the median other rank's, as far as it is late here."""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """How long a mean steady step would be without what it waits for: predictions, in seconds."""

    step_s: float
    """As it is."""
    ranks: tuple[int, ...]
    """Ranks that are late at some point."""
    without_ranks_s: float
    """If those were as fast as the typical other rank."""
    even_s: float
    """If the last rank of every step were."""
    hidden_s: float | None
    """If the all-reduce were hidden behind backward, and the same ranks were late; `None` where its
    tail is not covered."""
    below_s: float | None = None
    """By so much each of them may turn out shorter: the 95 % interval of a step, and caches that
    stay warm where ranks no longer wait.  `None` with too few steps to tell."""
    above_s: float | None = None
    """By so much longer: the same, and CPUs that ranks leave to each other while they wait."""


class DeviceTime(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a job's devices went; seconds summed over the ranks that were read."""

    devices: int
    whole_s: float
    parts_s: dict[str, float]
    """`stragglers`, `data stall`, `reductions` (even the last rank waits for them), the rest of
    the `steps`, and gaps by label, `restart` among them.  They sum to *whole_s* but for what no
    record covers."""


class SyncPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of the step at which ranks wait for each other; over steady steps.

    The transfer is what even the last rank waits, the skew of a rank what it waits beyond that.
    """

    point: str
    """Phase in which the ranks wait: `backward` (the all-reduce), under Lightning `loop` (before
    every fetch), or another one in which collectives are issued."""
    n: int
    """Steps in which every rank's wait is known."""
    wait_s: tuple[float, ...]
    """Mean wait per rank."""
    transfer_s: float
    """Mean of the smallest wait; at points other than `backward` with the work of that phase."""
    skew_s: float | None
    """Median of the largest skew."""
    lost_s: float
    """Mean of the largest skew: what the fastest rank loses here in a step."""
    straggler: int | None
    """The rank the others wait for, if it is clearly always the same one."""
    late_fraction: float
    """Share of steps in which those in *late* were clearly late, or else the one that most often
    was."""
    late_s: float | None
    """Median time the straggler comes after the typical other rank."""
    cause: str | None
    """Phase in which the straggler spends the largest part of it; `None` when none explains it."""
    cause_s: float | None
    """Mean excess of that phase over the median other rank's, as far as it is late here."""
    even_s: float = 0.0
    """Mean of what the last rank comes after the typical other one: what a step would save here if
    every rank were as fast as the typical one."""
    named_s: float = 0.0
    """What it would save if those in *late* were."""
    margin_s: float | None = None
    """95 % half-width of the median step without what its last rank costs here; `None` with too few
    steps."""
    who: WhoIsLate = ""
    late: tuple[LateRank, ...] = ()
    """All ranks that are late here by themselves; *straggler* is one of them."""
    host: str = ""
    """The host whose ranks they all are; empty where there is none, or it is unknown."""
    often_late: tuple[int, ...] = ()
    """Up to eight ranks that were clearly late most often, the most frequent first."""
    often_late_fraction: tuple[float, ...] = ()
    """In which share of the steps each of those was."""


class LineShare(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the user's code, and how much of a phase or gap was seen there."""

    where: str
    """`file:line`."""
    function: str
    """Empty where there is none to name: in a script's own code, a lambda, or the loop itself."""
    fraction: float
    """Share of the sampled wall time of that phase or gap."""
    samples: int
    """Of that phase or gap, in all."""

    @property
    def subject(self) -> str:
        """What to act on: `estimate_loss`, or `train.py:88` where no function is named."""
        return self.function or self.where

    @property
    def name(self) -> str:
        """E.g. `estimate_loss (train.py:88)`."""
        return f"{self.function} ({self.where})" if self.function else self.where


class PlainCode(msgspec.Struct, frozen=True, kw_only=True):
    """What a function of the user runs on the host that is no tensor operation."""

    line: LineShare
    """The innermost function in at least half of it, at its heaviest line; the share is of the
    phase or gap."""
    low: float
    high: float
    """95 % interval of that share, by the number of samples."""
    names: tuple[str, ...]
    """What runs, e.g. `time.sleep`; that which takes most first."""


class PhaseLines(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that were seen in a phase of the steady steps, or in a gap; on rank 0."""

    slot: str
    samples: int
    owner: LineShare | None
    """The innermost function in at least half of them, at its heaviest line, with the share of
    the function; in the function that runs the loop a line in at least half of them; `None` where
    there is none."""
    lines: tuple[LineShare, ...]
    """The heaviest ones, each with its own share."""
    host: PlainCode | None = None
    loader_fraction: float | None = None
    """Share of them inside a `DataLoader`; `None` where the recording does not say."""


class RecurringSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that are slow again and again, at regular distances or after a pause of training."""

    every: int | None
    """Steps from one to the next; `None` where *tag* says when they come."""
    tag: str
    """Tag that they share; empty where they come by their number."""
    steps: int
    of_steps: int
    """Ordinary steps that were looked at, these included."""
    slow_s: float
    """Median of them."""
    typical_s: float
    """Median of the ordinary steps."""
    lost_s: float
    """What they take beyond the median, all together."""
    phase: str
    """The one in which most of that is."""
    phase_fraction: float
    """How much of it."""
    line: LineShare | None
    """What owns that phase of these steps beyond an ordinary step: the outermost function that
    ordinary steps do not call, or a line of the functions that they do."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that changed with the steps: its mean before and after, or at both ends."""

    fact: str
    before: float
    after: float


class NewLevel(msgspec.Struct, frozen=True, kw_only=True):
    """From a step on, steps take longer."""

    from_step: int
    until_step: int | None
    """The first that does no longer; `None` if it lasts to the end."""
    before_s: float
    after_s: float
    """Medians of steady steps."""
    lost_s: float
    """What all these steps take longer together."""
    phase: str
    phase_s: float
    """What the phase takes longer in that rank."""
    rank: int | None
    """The rank whose phase that is; `None` if it is so on all, or there is one."""
    alike: bool
    """Whether forward, backward and optimizer grew by like factors: the machine, not the work."""
    moved: tuple[Moved, ...] = ()


class SlowDrift(msgspec.Struct, frozen=True, kw_only=True):
    """Steps get longer bit by bit, over all of the run."""

    steps: int
    begins_s: float
    ends_s: float
    """Mean step in the first sixteenth of the run, and in the last."""
    lost_s: float
    """What all steps take beyond those at first."""
    phase: str
    phase_begins_s: float
    phase_ends_s: float
    """Of the phase in that rank."""
    rank: int | None = None
    """The rank whose phase that is; `None` if it is so on all, or there is one."""
    hook: str = ""
    """The user's hook whose time grows most; empty where none does."""
    hook_begins_s: float = 0.0
    hook_ends_s: float = 0.0
    alike: bool = False
    """As in `NewLevel`."""
    moved: tuple[Moved, ...] = ()


class GrowingPause(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses of one kind that get longer."""

    gap: str
    number: int
    begins_s: float
    ends_s: float
    lost_s: float


class LongTerm(msgspec.Struct, frozen=True, kw_only=True):
    """All that; nothing where a run went on as it began."""

    levels: tuple[NewLevel, ...] = ()
    drift: SlowDrift | None = None
    pauses: tuple[GrowingPause, ...] = ()


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """What restarts cost a job, on its lowest rank."""

    number: int
    without_training_s: float
    """From the last line of an attempt to the start of the next, all of them together."""
    lost_s: float
    """That, the startups of all attempts but the first, and the steps that were done twice."""
    again_steps: int | None
    """Steps that were done twice; `None` where an attempt does not say where it went on."""


Cause = Literal[
    "thermal", "power brake", "device shared", "host shared", "memory", "disk", "network"
]
"""What a machine did that can make steps slower."""


class MachineWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time in which the machine did so, and the steady steps in it."""

    first_step: int
    last_step: int
    steps: int
    seconds: float
    slower: float | None
    """Mean step in it over that outside of all such stretches, minus 1; `None` with too few."""


class CauseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One cause on one host, or on one of its devices, over the whole run."""

    cause: Cause
    host: str
    device: int | None = None
    """Place of the device on its host; `None` where it is the host's."""
    fraction: float
    """Share of the time of steady steps."""
    steps: int
    slower: float | None = None
    """Median step in it over that outside of all causes, minus 1; `None` where there are too few of
    either."""
    lost_fraction: float = 0.0
    """Share of the time of steady steps that they take longer in it than the median outside."""
    shown: bool = False
    """Whether three in four of its steps are slower than the median outside."""
    with_others: float = 0.0
    """Share of its steps in which another cause held too."""
    values: dict[str, float] = {}
    """Means of what was sampled in it; `outside_sm_mhz` is the clock outside."""
    who: tuple[str, ...] = ()
    """Names of other processes, the one that kept most CPUs busy first."""
    windows: tuple[MachineWindow, ...] = ()
    """The longest ones, in their order."""


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One device while the fit ran; means over the samples, `None` for what it does not tell."""

    name: str
    sm_mhz: float | None = None
    least_mhz: float | None = None
    most_mhz: float | None = None
    """Of the chip, not of the run."""
    power_w: float | None = None
    limit_w: float | None = None
    celsius: float | None = None
    hottest: float | None = None
    busy: float | None = None
    throttled: dict[str, float] = {}
    """Reason for a lower clock (`thermal`, `power brake`, `power cap`) to its share of samples."""


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One host while the fit ran."""

    rank: int
    """Its first rank."""
    host: str
    cpus: int | None
    samples: int
    span_s: float
    sampler_cpus: float | None
    """CPUs that the sampling itself took."""
    means: dict[str, float]
    """Of the host's columns (`core.artifacts.machine` says what they are)."""
    worst: dict[str, float]
    """The largest of them; of `memory_free` the least."""
    devices: tuple[DeviceFacts, ...] = ()
    reasons: dict[str, str] = {}


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """Of all devices whose power is known, together; of the boards, not of their hosts."""

    joules: float
    """From the first sample to the last."""
    mean_w: float
    step_j: float | None
    """Of a mean steady step; `None` where the power of one of the devices is not known."""
    token_j: float | None
    """Of an effective token in steady steps."""
    devices: int
    counted: bool
    """Whether the devices count it themselves; else power was integrated over time."""


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All hosts that were sampled."""

    hosts: tuple[HostFacts, ...]
    causes: tuple[CauseFacts, ...] = ()
    """Those that came up at all, the one that lost most first."""
    energy: Energy | None = None


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """What the reader of a report pays, in a currency of their own."""

    per_hour: float | None = None
    """For everything that the run used, all ranks together, for an hour."""
    per_kwh: float | None = None
    """For electricity."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run, read: what reports show and comparisons compare."""

    schema: int = SCHEMA_VERSION
    run: RunFacts
    readings: dict[str, Reading]
    ledger_s: dict[str, float]
    """Seconds of the fit per phase and gap on the lowest rank; they sum to `run.fit_s`."""
    gaps: dict[str, int]
    """How many gaps of each kind that was."""
    excluded: dict[str, int]
    """Tag to the steps left out for it; a step with several counts under the first of them."""
    synchronisation: tuple[SyncPoint, ...]
    what_if: WhatIf | None = None
    """`None` where no rank's wait is known."""
    device_time: DeviceTime | None = None
    captures: tuple[CaptureAftermath, ...]
    traces: tuple[TracedSteps, ...] = ()
    """Traces that were read, in the order of their steps; per rank."""
    sequence_lengths: dict[int, int]
    """Upper edge of a bin of effective lengths, in tokens, to sequences in it; over all ranks."""
    longest_tokens: int = 0
    """Tokens with padding of the same sequences if each batch were as wide as its longest one;
    0: not counted."""
    actions_s: dict[str, float]
    """User hook to its host time per step, all steps, on the rank where it is largest.

    Hooks of ours are not among them: their time is in the reading `overhead_s`.
    """
    threads_s: dict[str, float] = {}
    """Other thread of Python to its processor time per step, all steps, on the rank where it is
    largest."""
    dimensions: Dimensions | None = None
    light: SpeedOfLight | None = None
    """`None` without an audited step, or where the chip's limits are not known."""
    memory: MemoryLedger | None = None
    compilation: Compilation | None = None
    loader: LoaderAnatomy | None = None
    host: HostShare | None = None
    """`None` where no rank says how many CPUs it may use."""
    lines: tuple[PhaseLines, ...] = ()
    """Empty where the training thread was not sampled."""
    slow_steps: RecurringSteps | None = None
    long_term: LongTerm = LongTerm()
    restarts: Restarts | None = None
    trials: Trials | None = None
    trials_from: str = ""
    """Another run of the same training that the trials are of; empty where they are its own."""
    machine: MachineFacts | None = None
    """`None` where no machine was sampled."""
    prices: Prices | None = None
    """What whoever asked for a report pays."""
    findings: tuple[Finding, ...] = ()
    """Ranked by predicted gain."""
    ordinary: Ordinary | None = None
    """Computing that no finding owns; `None` with too few steady steps."""
    decisions: tuple[Decision, ...] = ()
    """In the order of the findings."""
    warnings: tuple[str, ...] = ()
    """What a reader must know about the files before trusting the numbers."""

    def value(self, name: str) -> float | None:
        """Value of a reading; `None` where it was not measured."""
        reading = self.reading(name)
        return None if reading is None else reading.value

    def reading(self, name: str) -> Reading | None:
        """A reading; `None` in a run of a release that did not have it.

        Raises:
            KeyError: There is no reading of that name.
        """
        return find(self.readings, name)

    def owner(self, slot: str) -> LineShare | None:
        """The function that most of a phase or gap was seen in; `None` where there is none."""
        return next((lines.owner for lines in self.lines if lines.slot == slot), None)

    def phases_s(self) -> dict[str, float]:
        """Mean host seconds of each measured phase of a step, by label, in the order of the step.

        Of steady steps; of all steps where none is steady.  A phase that was not measured is
        absent: its time is in `other`.
        """
        if self.run.steady_steps:
            means = {phase.label: self.value(phase_reading(phase.label)) for phase in PHASES}
        else:
            spent = {phase.label: self.ledger_s.get(phase.label) for phase in PHASES}
            means = {n: s and s / max(1, self.run.steps) for n, s in spent.items()}
        named = [name for name in means if not not_covered(self.reading(phase_reading(name)))]
        return {name: mean_s for name in named if (mean_s := means[name]) is not None}


def encode_summary(summary: Summary) -> bytes:
    """The contents of `summary.json`, indented for people."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
