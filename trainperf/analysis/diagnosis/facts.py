"""Facts of a training beside its seconds: settings, counts, and what was looked at."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainperf.analysis.roofline.roofline import Roofline
from trainperf.analysis.summary.lines import BETWEEN
from trainperf.analysis.summary.schema import (
    CauseFacts,
    HostShare,
    LineShare,
    LongTerm,
    MachineFacts,
    PhaseLines,
    PlainCode,
    RecurringSteps,
    StallingCall,
    SyncPoint,
    WhatIf,
)
from trainperf.core.artifacts.folder import Documents
from trainperf.core.findings import LIMITS
from trainperf.core.loop_kind import PLAIN, LoopKind
from trainperf.core.machine.backends import CUDA, Backend
from trainperf.core.readings import (
    MEMORY_PEAK_BYTES,
    RESIDENT_PEAK_BYTES,
    STEP_IQR_S,
    STEP_S,
    find,
)
from trainperf.core.steps.records import Scalar
from trainperf.meters.fold import Reading
from trainperf.traces.results import RankTrace, Straggler


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Of a run, a capture or a log; what is not known is missing, empty or `None`."""

    loop: LoopKind = PLAIN
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    """Configuration, then hardware."""
    software: Mapping[str, str] = field(default_factory=dict)
    device: Backend = CUDA
    """What advice may say of the device."""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    documents: Documents = field(default_factory=Documents)
    light: Roofline | None = None
    """The audited step against its chip."""
    traces: tuple[RankTrace, ...] = ()
    """Captures that were read, the latest last."""
    stragglers: tuple[Straggler, ...] = ()
    """Who was waited for in the steps of a capture."""
    steps: int = 0
    steady_steps: int = 0
    state: str = "finished"
    end_reason: str | None = None
    ranks: int = 1
    rank_numbers: tuple[int, ...] = ()
    """In the order in which readings have them."""
    world_size: int = 1
    prepared_ranks: int = 1
    """Those that prepared data for long before the fit."""
    gaps: Mapping[str, int] = field(default_factory=dict)
    """Kind of pause to how many there were."""
    excluded: Mapping[str, int] = field(default_factory=dict)
    lines: tuple[PhaseLines, ...] = ()
    collects: tuple[StallingCall, ...] = ()
    """Lines that look for garbage, with their share of all steps."""
    actions_s: Mapping[str, float] = field(default_factory=dict)
    """User hook to its seconds in a step, longest first."""
    own: Mapping[str, float] = field(default_factory=dict)
    """Of a mean steady step what has no column, as `Totals.own` names it."""
    slow_steps: RecurringSteps | None = None
    long_term: LongTerm = field(default_factory=LongTerm)
    points: tuple[SyncPoint, ...] = ()
    what_if: WhatIf | None = None
    machine: MachineFacts | None = None
    host: HostShare | None = None
    sequence_lengths: Mapping[int, int] = field(default_factory=dict)
    longest_tokens: int = 0

    def value(self, name: str) -> float | None:
        """Of a reading; `None` where it was not measured."""
        reading = self.reading(name)
        return None if reading is None else reading.value

    def reading(self, name: str) -> Reading | None:
        """A reading; `None` where there is none of that name in this run."""
        return find(self.readings, name) if self.readings else None

    def worst(self, name: str) -> float | None:
        """A reading's largest value on any rank: a bound must hold for the slowest."""
        reading = self.reading(name)
        if reading is None or reading.value is None:
            return None
        return max((rank for rank in reading.per_rank if rank is not None), default=reading.value)

    @property
    def peak_bytes(self) -> float | None:
        """Largest use of memory of any rank: of its device, else of its process."""
        return self.worst(MEMORY_PEAK_BYTES) or self.worst(RESIDENT_PEAK_BYTES)

    def number(self, name: str) -> float | None:
        """A setting that is a number; `None` when it is not known."""
        value = self.settings.get(name)
        return value if isinstance(value, int | float) else None

    def owner(self, slot: str) -> LineShare | None:
        """The function that most of a phase or gap was seen in."""
        return next((lines.owner for lines in self.lines if lines.slot == slot), None)

    def owner_of_phase(self, phase: str) -> LineShare | None:
        """The same of all that a phase was recorded with: a wait may be the loop's own code too."""
        slots = (phase, BETWEEN) if phase == "data_wait" else (phase,)
        lines = [each for each in self.lines if each.slot in slots]
        return max(lines, key=lambda each: each.samples).owner if lines else None

    def plain_code(self, slot: str) -> PlainCode | None:
        """What ran in a phase on the host that is no tensor operation."""
        return next((lines.host for lines in self.lines if lines.slot == slot), None)

    @property
    def micro_batches(self) -> int:
        """Batches of a step, by the configuration; one where it does not say."""
        number = self.settings.get("accumulate_grad_batches")
        return number if isinstance(number, int) and number > 0 else 1

    @property
    def cpus(self) -> int | None:
        """Whole CPUs for one rank, at least one; `None` if not known."""
        return None if self.host is None else max(1, int(self.host.cpus_per_rank))

    @property
    def noisy(self) -> bool:
        """Whether steady steps vary so widely that a share of them is less certain.

        From a quarter of the median on torch.utils.benchmark calls a measurement worthless.
        """
        step_s, apart_s = self.value(STEP_S), self.value(STEP_IQR_S)
        enough = self.steady_steps >= LIMITS.steps
        return bool(enough and step_s and apart_s is not None and apart_s / step_s >= 0.25)

    @property
    def ran_out(self) -> bool:
        """Whether the fit ended because there was no memory left."""
        memory = self.documents.memory
        ended = memory is not None and memory.out_of_memory is not None
        return ended or self.end_reason in ("OutOfMemoryError", "MemoryError")

    @property
    def slowed_by(self) -> tuple[CauseFacts, ...]:
        """What the machine did while steps are shown to be slower, what lost most first."""
        if self.machine is None or self.steady_steps < LIMITS.steps:
            return ()
        return tuple(
            each
            for each in self.machine.causes
            if each.shown
            and (each.slower or 0.0) >= LIMITS.worth
            and each.lost_fraction >= LIMITS.worth / 5
        )

    def machine_slowed(self, first_step: int, last_step: int, slower: float) -> bool:
        """Whether the machine is why just these steps are slower, by so much."""
        for cause in self.slowed_by:
            between = min(last_step, cause.last_step) - max(first_step, cause.first_step) + 1
            # It may have come and gone: as often here as anywhere.
            inside = between * cause.steps / (cause.last_step - cause.first_step + 1)
            most = inside >= LIMITS.regular * (last_step - first_step + 1)
            if most and (cause.slower or 0.0) >= LIMITS.regular * slower:
                return True
        return False
