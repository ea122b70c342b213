"""Contents of `summary.json`: what is known about a run once it has been read.

Plain data in SI units, made by `trainperf.analysis.summarize`, judged by
`trainperf.analysis.diagnosis`, shown by `trainperf.reports`.  `None` means *not measured*; a
reading without a value says why.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Literal

import msgspec

from trainperf.analysis.roofline.speed_of_light import SpeedOfLight
from trainperf.analysis.roofline.time_split import Dimensions
from trainperf.analysis.summary.machine_schema import (
    Cause,
    CauseFacts,
    DeviceFacts,
    HostFacts,
    MachineFacts,
)
from trainperf.analysis.summary.rank_schema import (
    Hang,
    HostShare,
    LateRank,
    SyncPoint,
    WhoIsLate,
)
from trainperf.analysis.summary.step_schema import (
    LineShare,
    Moved,
    PhaseLines,
    PlainCode,
    RecurringSteps,
    RunChange,
    StallingCall,
)
from trainperf.core.artifacts.compilation import Compilation
from trainperf.core.artifacts.memory import MemoryLedger
from trainperf.core.artifacts.trials import Trials
from trainperf.core.findings import Finding, Ordinary
from trainperf.core.loop_kind import LoopKind, loop_of
from trainperf.core.machine.backends import Backend, backend_of
from trainperf.core.phases import PHASES
from trainperf.core.readings import STEP_MEAN_S, find, phase_reading
from trainperf.core.steps.own_sums import AnswerFacts, NamedPhase
from trainperf.core.steps.records import SCHEMA_VERSION, RunIdentity
from trainperf.meters.fold import Reading, not_covered


__all__ = [
    "MOST_RANKS",
    "Cause",
    "CauseFacts",
    "DeviceFacts",
    "HostFacts",
    "HostShare",
    "LateRank",
    "LineShare",
    "MachineFacts",
    "Moved",
    "PhaseLines",
    "PlainCode",
    "RankEnd",
    "RankState",
    "RecurringSteps",
    "Restarts",
    "RunChange",
    "RunFacts",
    "StallingCall",
    "State",
    "Summary",
    "SyncPoint",
    "TracedSteps",
    "WhoIsLate",
]


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


class RunFacts(RunIdentity, frozen=True, kw_only=True):
    """Who the run was, how far it came and how it ended."""

    path: str = ""
    name: str = ""
    state: State = "finished"
    """The lowest rank's.  `running` and `killed` both lack an end mark; the process, or the time
    of the last write, tells them apart; while one rank runs, the run does."""
    end_reason: str | None = None
    """Class name of the exception that ended the fit, or `NOT_CLOSED`."""
    attempts: int = 1
    ranks: tuple[int, ...] = (0,)
    """Ranks whose files were read; the order of every `per_rank`."""
    steps: int = 0
    """Steps that every rank of their attempt recorded: the readings stand on them."""
    steady_steps: int = 0
    window: str = ""
    """What was asked for of the run, e.g. `steps 10,000-20,000`; empty for all of it."""
    fit_s: float = 0.0
    """Host time of the fit on the lowest rank; up to the last line while it is running."""
    before_s: dict[str, float] = msgspec.field(default_factory=dict)
    """Seconds from the start of the process to its first fit: `before_fit` is the script's own
    work, `imports` loading modules, what has a name (`loading_weights`, `compiling`, …) that, and
    `unseen` what came before anybody looked.  Of a whole run that has ended; else empty."""
    seen_from: str = "torch"
    """The package that had just been loaded then: under `trainperf run` torch."""
    first_s: dict[str, float] = msgspec.field(default_factory=dict)
    """Seconds of the fit up to its first steady step: `startup`, `first_batch`, `compiling`,
    `first_step` without these, `warmup`.  Known where `before_s` is."""
    prepared_ranks: int = 1
    """Ranks that prepared data for long before the fit: half as long as any, or longer."""
    same_inputs: tuple[str, ...] = ()
    """`training` and `validation`, where the model was given the same on all ranks, each of which
    holds the whole of it and has left its file."""
    faults: dict[str, str] = msgspec.field(default_factory=dict)
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    ended_otherwise: tuple[RankEnd, ...] = ()
    """Ranks of the latest attempt that ended otherwise than the run, or with fewer steps."""

    @property
    def loop(self) -> LoopKind:
        """The kind of loop that trained, and what it calls things."""
        return loop_of(self.config)

    @property
    def backend(self) -> Backend:
        """The device that computed, and what is said of it."""
        return backend_of(self.device, self.software)


class TracedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """A trace's answer, and whether the records agree with it on those steps."""

    file: str
    rank: int
    first_step: int
    """In the records of this fit."""
    steps: int
    answer: str
    """One sentence, of all ranks that were read together."""
    recorded_s: float | None = None
    """Median step time in the records; `None` but for the lowest rank of a run that was never
    restarted."""
    traced_s: float | None = None
    """Median time of the same steps in the trace."""
    agree: bool = True
    """Whether these are within 5 % of each other."""


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """What restarts cost a job, on its lowest rank."""

    lost_s: float
    """The gaps `restart` and the startups of all attempts but the first, and the steps that were
    done twice."""
    again_steps: int | None
    """Steps that were done twice; `None` where an attempt does not say where it went on."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run, read: what reports show and comparisons compare."""

    schema: int = SCHEMA_VERSION
    run: RunFacts = RunFacts()
    readings: dict[str, Reading] = {}
    ledger_s: dict[str, float] = {}
    """Seconds of the fit per phase and gap on the lowest rank; they sum to `run.fit_s`."""
    gaps: dict[str, int] = {}
    """How many gaps of each kind that was."""
    excluded: dict[str, int] = {}
    """Tag to the steps left out for it; a step with several counts under the first of them."""
    synchronisation: tuple[SyncPoint, ...] = ()
    traces: tuple[TracedSteps, ...] = ()
    """Traces that were read, in the order of their steps; per rank."""
    sequence_lengths: dict[int, int] = {}
    """Upper edge of a bin of effective lengths, in tokens, to sequences in it; over all ranks."""
    hang: Hang | None = None
    """`None` while steps end, and where nothing stands still."""
    longest_tokens: int = 0
    """Tokens with padding of the same sequences if each batch were as wide as its longest one;
    0: not counted."""
    actions_s: dict[str, float] = {}
    """User hook to its host time per step, all steps, on the rank where it is largest.

    Hooks of ours are not among them: their time is in the reading `overhead_s`.
    """
    threads_s: dict[str, float] = {}
    """Other thread of Python to its processor time per step, all steps, on the rank where it is
    largest."""
    named_phases: dict[str, NamedPhase] = {}
    answers: AnswerFacts | None = None
    """`None` where no policy generates."""
    dimensions: Dimensions | None = None
    light: SpeedOfLight | None = None
    """`None` without an audited step, or where the chip's limits are not known."""
    memory: MemoryLedger | None = None
    compilation: Compilation | None = None
    host: HostShare | None = None
    """`None` where no rank says how many CPUs it may use."""
    lines: tuple[PhaseLines, ...] = ()
    """Empty where the training thread was not sampled."""
    collects: tuple[StallingCall, ...] = ()
    """Lines that look for garbage, with their share of all steps, the longest first."""
    slow_steps: RecurringSteps | None = None
    long_term: tuple[RunChange, ...] = ()
    """From steps on, or one bit by bit; none where the run went on as it began."""
    restarts: Restarts | None = None
    trials: Trials | None = None
    machine: MachineFacts | None = None
    """`None` where no machine was sampled."""
    findings: tuple[Finding, ...] = ()
    """In the order in which to act on them, each with what it returns."""
    ordinary: Ordinary | None = None
    """Computing that no finding owns; `None` with too few steady steps."""
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
        return self.lines_in(slot).owner

    def lines_in(self, slot: str) -> PhaseLines:
        """Lines that were seen in a phase or gap; none where it was not sampled."""
        unseen = PhaseLines(slot=slot, samples=0, owner=None, lines=())
        return next((lines for lines in self.lines if lines.slot == slot), unseen)

    @property
    def hosts(self) -> tuple[HostFacts, ...]:
        """Hosts of which the machine was sampled."""
        return () if self.machine is None else self.machine.hosts

    @property
    def median_length(self) -> int:
        """Upper edge of the bin in which half of the sequences is reached; 0 without any."""
        edges, half = sorted(self.sequence_lengths), sum(self.sequence_lengths.values()) / 2
        reached = zip(edges, accumulate(map(self.sequence_lengths.__getitem__, edges)), strict=True)
        return next((edge for edge, below in reached if below >= half), 0)

    @property
    def lengths_in_words(self) -> str:
        """Maximum and median of the sequence lengths, each as the upper edge of its bin."""
        if not self.sequence_lengths:
            return ""
        return f"longest ≤ {max(self.sequence_lengths):,}, median ≤ {self.median_length:,} tokens"

    def generated_tokens_per_s(self) -> float | None:
        """Tokens of answers that all ranks generate, per second of the whole step."""
        step_s = self.value(STEP_MEAN_S)
        if self.answers is None or not step_s:
            return None
        return self.answers.tokens * len(self.run.ranks) / step_s

    def phases_s(self) -> dict[str, float]:
        """Mean host seconds of each measured phase of a step, by label, in the order of the step.

        Of steady steps; of all steps where none is steady.  A phase that was not measured is
        absent: its time is in `other`.  Those that the loop has named itself come last.
        """
        if self.run.steady_steps:
            means = {phase.label: self.value(phase_reading(phase.label)) for phase in PHASES}
        else:
            steps = max(1, self.run.steps)
            means = {slot: spent_s / steps for slot, spent_s in self.ledger_s.items()}
        measured_s = {
            phase.label: mean_s
            for phase in PHASES
            if (mean_s := means.get(phase.label)) is not None
            and not not_covered(self.reading(phase_reading(phase.label)))
        }
        return with_named_phases(measured_s, self.named_phases)


def with_named_phases(
    phases_s: Mapping[str, float], named: Mapping[str, NamedPhase]
) -> dict[str, float]:
    """Phases with those that the loop has named itself, which were in `other`."""
    named_s = {name: phase.seconds for name, phase in named.items()}
    if not named_s or "other" not in phases_s:
        return dict(phases_s)
    return {**phases_s, "other": max(0.0, phases_s["other"] - sum(named_s.values())), **named_s}
