"""Facts of a training beside its seconds: settings, counts, and what was looked at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from trainperf.analysis.roofline.roofline import Roofline
from trainperf.analysis.summary.lines import BETWEEN
from trainperf.analysis.summary.schema import (
    CauseFacts,
    LineShare,
    RunFacts,
    Summary,
)
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.artifacts.compilation import Compilation
from trainperf.core.artifacts.folder import Documents
from trainperf.core.findings import LIMITS
from trainperf.core.loop_kind import LoopKind
from trainperf.core.readings import (
    MEMORY_PEAK_BYTES,
    RECOMPILES,
    RESIDENT_PEAK_BYTES,
    SAMPLES_PER_S,
    STEP_IQR_S,
    STEP_S,
)
from trainperf.core.steps.records import Scalar
from trainperf.traces.capture_files import CaptureReport
from trainperf.traces.results import RankTrace, Straggler


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Of a run, a capture or a log; what is not known is missing, empty or `None`."""

    summary: Summary = field(default_factory=Summary)
    """What its steps were read as; of a capture only how many there are, and of which loop."""
    documents: Documents = field(default_factory=Documents)
    light: Roofline | None = None
    """The audited step against its chip; `None` without an audit, or where the chip is unknown."""
    typical: Roofline | None = None
    """The same of a step as large as the steady ones are on average: comparable with their times.
    `None` where none is steady, or the audited step is too unlike them."""
    captures: tuple[CaptureReport, ...] = ()
    """Those of a run that were read, in the order of their steps."""
    traces: tuple[RankTrace, ...] = ()
    """Ranks of all captures, those of the latest last."""
    stragglers: tuple[Straggler, ...] = ()
    """Who was waited for in the steps of a capture that is judged by itself."""

    @property
    def run(self) -> RunFacts:
        """Who it was, how far it came and how it ended."""
        return self.summary.run

    @property
    def loop(self) -> LoopKind:
        """The kind of loop, and what it calls things."""
        return self.run.loop

    @cached_property
    def settings(self) -> Mapping[str, Scalar]:
        """Configuration, then hardware, then environment variables."""
        return {**self.run.environment, **self.run.hardware, **self.run.config}

    @property
    def uses(self) -> tuple[OperatorUse, ...]:
        """Operators of the audited step; none without one."""
        return () if self.documents.audit is None else self.documents.audit.operators

    @property
    def compilation(self) -> Compilation:
        """What is known of compiling; without it no more than the graphs that steps built."""
        return self.documents.compilation or Compilation(
            graphs=round(self.value(RECOMPILES) or 0.0)
        )

    def value(self, name: str) -> float | None:
        """Of a reading; `None` where it was not measured."""
        return self.summary.value(name)

    def worst(self, name: str) -> float | None:
        """A reading's largest value on any rank: a bound must hold for the slowest."""
        reading = self.summary.reading(name)
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

    def owner_of_phase(self, phase: str) -> LineShare | None:
        """The same of all that a phase was recorded with: a wait may be the loop's own code too."""
        slots = (phase, BETWEEN) if phase == "data_wait" else (phase,)
        return max(map(self.summary.lines_in, slots), key=lambda each: each.samples).owner

    @property
    def loads(self) -> float | None:
        """Share of what was recorded as data wait in which samples were in a loader."""
        waits = map(self.summary.lines_in, ("data_wait", BETWEEN))
        return next((w.loader_fraction for w in waits if w.loader_fraction is not None), None)

    @property
    def waits_in_own_code(self) -> bool:
        """Whether samples of what was recorded as data wait are mostly in no loader."""
        return self.loads is not None and self.loads < LIMITS.mostly

    @property
    def micro_batches(self) -> int:
        """Batches of a step: by the configuration, else those of the audited one; else one."""
        configured, audit = self.number("accumulate_grad_batches"), self.documents.audit
        audited = 1 if audit is None else audit.micro_batches
        return max(1, audited if configured is None else int(configured))

    def samples_in(self, seconds: float) -> float:
        """Samples that a rank trains on in so many seconds of steps; 0 where that is not known."""
        return (self.value(SAMPLES_PER_S) or 0.0) * seconds / max(1, len(self.run.ranks))

    @property
    def cpus(self) -> int | None:
        """Whole CPUs for one rank, at least one; `None` if not known."""
        return None if self.summary.host is None else max(1, int(self.summary.host.cpus_per_rank))

    @property
    def noisy(self) -> bool:
        """Whether steady steps vary so widely that a share of them is less certain.

        From a quarter of the median on torch.utils.benchmark calls a measurement worthless.
        """
        step_s, apart_s = self.value(STEP_S), self.value(STEP_IQR_S)
        wide = bool(step_s and apart_s is not None and apart_s / step_s >= 0.25)
        return wide and self.run.steady_steps >= LIMITS.steps

    @property
    def ran_out(self) -> bool:
        """Whether the fit ended because there was no memory left."""
        memory = self.documents.memory
        ended = memory is not None and memory.out_of_memory is not None
        return ended or self.run.end_reason in ("OutOfMemoryError", "MemoryError")

    @property
    def machine_causes(self) -> tuple[CauseFacts, ...]:
        """What the machine did beside steps enough to judge, what lost most first."""
        machine = self.summary.machine if self.run.steady_steps >= LIMITS.steps else None
        return () if machine is None else machine.causes


def slows(cause: CauseFacts) -> bool:
    """Whether steps are shown to be slower while the machine does it."""
    slower, lost = cause.slower or 0.0, cause.lost_fraction
    return cause.shown and slower >= LIMITS.worth and lost >= LIMITS.worth / 5
