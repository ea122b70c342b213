"""What is a rule?  A pure function from the evidence of a run to a finding, or to `None`.

`None` means that the rule sees nothing wrong, or that the data it needs is missing: then it says
nothing rather than guess.
"""

from collections.abc import Callable
from dataclasses import dataclass

from trainperf.analysis.evidence import Evidence
from trainperf.analysis.summary.schema import Finding, Level, Summary
from trainperf.core.phases import PHASES, Gap, Phase


Rule = Callable[[Evidence], Finding | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When something counts as a problem: shares of a steady step unless said otherwise."""

    notable: float = 0.10
    """Warn from here on (TraceML warns at 10 % of the step)."""
    critical: float = 0.20
    """Severe from here on (TraceML's critical band)."""
    hidden: float = 0.25
    """A stall below this share of the host's data wait: the device hides the rest."""
    many_tensors: int = 16
    """In a batch: from here on handling them stands out beside what is in them."""
    small_tensor_bytes: int = 1 << 18
    """A copy of 256 KiB takes 10 µs over a link of 25 GB/s: as long as starting it does."""
    handling: float = 12.0
    """Times the least that a small tensor of a sample costs: one that costs more is work."""
    uneven: float = 2.0
    """One batch in twenty takes so many times the mean."""
    epoch_start: float = 0.05
    """Of the fit: what epochs cost to start, between them and in their first batches."""
    validation: float = 0.20
    """Of the fit."""
    checkpoint: float = 0.10
    """Of the fit."""
    overflow: float = 0.02
    """Of the updates; a scaler that settled skips one in its growth interval of 2,000."""
    overflows: int = 10
    """A scale that starts at 2¹⁶ may be halved so often before it fits."""
    padding: float = 0.20
    """Of the tokens; ordinary batches of unequal documents have 30–66 % (parcae#8)."""
    host_bound: float = 0.50
    """Of the steps."""
    launch: float = 0.30
    """Operators below their launch; in a healthy step of a few ms small ones add up to a tenth."""
    handed_on: float = 0.25
    """Of what elementwise operators move: what one kernel would not; a pair hands on a third."""
    faster_precision: float = 2.0
    """Times the fp32 peak from which another precision is worth its digits (A100's TF32: 8)."""
    garbage: float = 0.02
    """Of all step time."""
    collections: int = 5
    """Steps that did little else; fewer are the start of a process, not a habit."""
    first_step: float = 0.10
    """Of the fit: a compilation that the run is too short to pay back."""
    first_step_s: float = 10.0
    """In a fit of seconds the first step always stands out and never matters."""
    redundant: float = 0.25
    """Of the all-reduces: two micro-batches a step waste half of them."""
    schedule: float = 1.5
    """Scheduler steps an update; one is right, and less is a schedule by the epoch."""
    recompiles: float = 0.05
    """Of the fit, beyond what the same steps take without the compiler."""
    recompiled_steps: int = 2
    """A shape that is seen to change is compiled once more, for all lengths: that is ordinary."""
    compile_s: float = 1.0
    """Compiling for less is waited for, and forgotten."""
    compiled_gain: float = 1.43
    """How much faster torch.compile trains on average by torch's own account (A100, 163 models)."""
    synced: float = 0.05
    """Of the step: the device idle because the host waits for it (as in `trainperf trace`)."""
    idle_cores: int = 4
    """On a machine of fewer the loader and the system have use for the others."""
    in_noise: float = 0.30
    """What one audited step must show where the steady ones are noisy."""
    noise: float = 0.25
    """Middle half over median: torch.utils.benchmark calls such a measurement worthless."""
    own_cost: float = 0.03
    """Our promise (design §8)."""
    memory: float = 0.92
    """Of the memory that there is (TraceML's pressure bands: 0.92 and 0.97)."""
    memory_critical: float = 0.97
    """As `memory`: severe from here on."""
    fragmentation: float = 0.20
    """Of the reserved memory that no tensor ever used."""
    reserved: float = 0.80
    """Of the memory that there is: holes in less of it do no harm."""
    leak_bytes: int = 32 << 20
    """Growth over the steady steps; less may be an allocator's (TraceML looks from 100 MB on)."""
    leak_steps: int = 100_000
    """A fit of ordinary length: memory that is full later is no leak that matters."""
    held: float = 0.5
    """Of the steps from which something is held, and of the growth that a container explains."""
    steps: int = 20
    """Fewer steady steps carry no diagnosis of theirs."""


LIMITS = Thresholds()


def value(summary: Summary, name: str) -> float | None:
    """A reading's value over all ranks; `None` when it was not measured."""
    reading = summary.readings.get(name)
    return reading.value if reading else None


def worst(summary: Summary, name: str) -> float | None:
    """A reading's largest value on any rank: a bound on a gain must hold for the slowest."""
    reading = summary.readings.get(name)
    if reading is None or reading.value is None:
        return None
    return max((rank for rank in reading.per_rank if rank is not None), default=reading.value)


def phase_fraction(summary: Summary, phase: Phase) -> float | None:
    """Share of the mean steady step on the rank where it is largest; `None` without enough.

    What one late rank alone spends there is left out: that is the straggler's.
    """
    if summary.run.steady_steps < LIMITS.steps:
        return None
    spent, step = worst(summary, f"phase_{phase.label}_s"), value(summary, "step_mean_s")
    if spent is None or not step:
        return None
    return min(max(spent - late_s(summary, phase), 0.0) / step, 1.0)


def late_s(summary: Summary, phase: Phase) -> float:
    """Seconds of a step by which one named rank is late because of a phase."""
    caused = [point.cause_s for point in summary.synchronisation if point.cause == phase.label]
    return sum(filter(None, caused))


def own_fit_s(summary: Summary) -> float:
    """Of the fit, without what it waited for a run that it took turns with."""
    return summary.run.fit_s - summary.ledger_s.get(Gap.OTHERS_TURN.label, 0.0)


def gap_fraction(summary: Summary, gap: str) -> float:
    """Share of the fit; 0 when there was none."""
    fit_s = own_fit_s(summary)
    return summary.ledger_s.get(gap, 0.0) / fit_s if fit_s else 0.0


def all_steps_s(summary: Summary) -> float:
    """Time of all steps of the fit, steady or not."""
    return sum(summary.ledger_s.get(phase.label, 0.0) for phase in PHASES)


def at_most(fraction: float) -> float | None:
    """Amdahl's law: how many times faster it gets when *fraction* of it vanishes."""
    return 1 / (1 - fraction) if fraction < 1 else None


def severity(fraction: float) -> Level:
    """How much a share of the step matters."""
    if fraction >= LIMITS.critical:
        return "high"
    return "medium" if fraction >= LIMITS.notable else "low"


def setting(summary: Summary, name: str) -> float | None:
    """A number from the run's configuration or hardware; `None` when it is not known."""
    for known in (summary.run.config, summary.run.hardware):
        found = known.get(name)
        if isinstance(found, (int, float)):
            return found
    return None
