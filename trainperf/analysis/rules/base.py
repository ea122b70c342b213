"""Rules: pure functions from the evidence of a run to a finding.

`None` means that nothing is wrong, or that the data to tell is missing: a rule does not guess.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Literal

import msgspec

from trainperf.analysis.roofline.roofline import Roofline, faster, roofline
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.folder import Documents
from trainperf.core.findings import COLD, LIMITS, REFILL_S, Finding, amdahl
from trainperf.core.machine.chips import Chip, chip_of
from trainperf.core.phases import PHASES, Gap, Phase
from trainperf.core.readings import (
    DATA_WAIT_ALL_FRACTION,
    DATA_WAIT_FRACTION,
    HOST_BOUND_FRACTION,
    STEP_MEAN_S,
    phase_reading,
)
from trainperf.traces.capture_files import CaptureReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Recorded facts of one run; a rule that needs one that is missing abstains."""

    summary: Summary
    documents: Documents = field(default_factory=Documents)
    light: Roofline | None = None
    """The audited step against its chip; `None` without an audit, or where the chip is unknown."""
    typical: Roofline | None = None
    """The same of a step as large as the steady ones are on average: comparable with their
    times.  `None` where none is steady, or the audited step is too unlike them."""
    captures: tuple[CaptureReport, ...] = ()
    """Traces that were read, in the order of their steps."""


Rule = Callable[[Evidence], Finding | None]

TraceTime = Literal["data_wait", "communication", "host", "operators"]
"""Time in a trace that shows a finding: data wait, exposed communication, a device idle because of
the host, or operators."""


def light_of(documents: Documents, step_s: float | None = None) -> Roofline | None:
    """Floors of the audited step on the chip it ran on: the measured one, else the table's.

    Args:
        documents: Those of the run.
        step_s: What a steady step takes.  A chip that was measured cannot be slower than that:
            where its floor says so, others used the machine meanwhile, and its rates are raised.
    """
    audit, chip = documents.audit, chip_used(documents)
    if audit is None or chip is None:
        return None
    light = roofline(audit, chip)
    if not step_s or light.step.floor_s <= step_s or chip_of(audit.device_name) is not None:
        return light
    return roofline(audit, faster(chip, light.step.floor_s / step_s))


def chip_used(documents: Documents) -> Chip | None:
    """The chip that the audited step ran on, as far as its limits are known."""
    if documents.chip is not None:
        return documents.chip.chip
    return None if documents.audit is None else chip_of(documents.audit.device_name)


def leaves_cold_caches(rule: Rule) -> Rule:
    """A rule whose cause sleeps, launches a great deal or runs Python that the caches forget.

    Its bounds are `warm_bound`s.  Rules about arithmetic, or about how much of it there is, keep
    Amdahl's law: what is next to them is as warm before as after.
    """

    @wraps(rule)
    def warm(evidence: Evidence) -> Finding | None:
        finding = rule(evidence)
        return None if finding is None else warm_bound(finding, evidence.summary)

    return warm


def warm_bound(
    finding: Finding,
    summary: Summary,
    *,
    least: float = 0.0,
    refills: float = 1.0,
    freed_s: float = 0.0,
) -> Finding:
    """The finding, its bound so wide that it holds where the rest of the step gets faster too.

    A cause that works or sleeps on the host leaves cold caches to everything after it: without it
    the rest is faster as well, by what `COLD` and `REFILL_S` allow, and by no more than the cause
    takes itself: nothing of 0.2 ms pushes out what takes 2 ms to fetch again.  E.g. of a step of
    6 ms a cause takes 3 ms: Amdahl's law says 2×; the other 3 ms may take 1 ms when warm: 6×.
    Of a step of 60 ms it takes 30 ms: 60 / (30 - 2) = 2.14×.  Nothing changes where a device does
    not wait for its host.

    Args:
        finding: With Amdahl's bound.
        summary: Of its run.
        least: Share of its scope that stays however warm the rest is, e.g. what workers take.
        refills: How often a step fetches `REFILL_BYTES` again because of the cause.
        freed_s: How long per step the rest waits for threads that the cause keeps busy.
    """
    lost, step_s = finding.fraction, summary.value(STEP_MEAN_S)
    host = summary.run.device == "cpu" or (
        (summary.value(HOST_BOUND_FRACTION) or 0.0) >= LIMITS.host_bound
    )
    if finding.gain_upper_bound is None or not lost or not step_s or not host:
        return finding
    scope_s, times = step_s, refills
    if finding.scope == "fit":
        # After each of its pauses, or in every step where it is not a pause.
        scope_s, times = own_fit_s(summary), summary.gaps.get(finding.id) or summary.run.steps
    if not scope_s:
        return finding
    rest = 1.0 - lost
    warmer = min(lost, rest * (1 - 1 / COLD), times * REFILL_S / scope_s)
    freed = 0.0 if finding.scope == "fit" else freed_s / step_s
    # A rest that did nothing but wait for the interpreter is nobody's: a tenth of it is work.
    left = max(rest - warmer - freed, least, rest / 10 if freed else 0.0)
    return msgspec.structs.replace(finding, gain_upper_bound=amdahl(1.0 - left))


def steady_step_s(summary: Summary) -> float | None:
    """Mean of the steady steps; `None` with too few of them to judge by."""
    return summary.value(STEP_MEAN_S) if summary.run.steady_steps >= LIMITS.steps else None


def worst(summary: Summary, name: str) -> float | None:
    """A reading's largest value on any rank: a bound on a gain must hold for the slowest."""
    reading = summary.reading(name)
    if reading is None or reading.value is None:
        return None
    return max((rank for rank in reading.per_rank if rank is not None), default=reading.value)


_SENDING = (Phase.CALLBACKS, Phase.OTHER)
"""Where a Trainer's rank 0 is while it sends the batches: after a step, and before the next."""


def phase_fraction(summary: Summary, phase: Phase) -> float | None:
    """Share of the mean steady step on the rank where it is largest; `None` without enough.

    What one late rank alone spends there is excluded: that is the straggler's.  So is what rank 0
    spends outside its work where it sends the others their batches: they wait for it in the loader.
    """
    spent, step = worst(summary, phase_reading(phase.label)), steady_step_s(summary)
    if spent is None or not step:
        return None
    if phase in _SENDING and dispatched(summary):
        reading = summary.reading(phase_reading(phase.label))
        others = reading.per_rank[1:] if reading is not None else ()
        spent = max((rank for rank in others if rank is not None), default=0.0)
    return min(max(spent - late_s(summary, phase), 0.0) / step, 1.0)


def dispatched(summary: Summary) -> bool:
    """Whether Accelerate's rank 0 loads the batches of all ranks and sends them."""
    several = len(summary.run.ranks) > 1
    return several and summary.run.config.get("loader") == "DataLoaderDispatcher"


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


def first_batches_s(summary: Summary) -> float | None:
    """What the fit waits for data beyond what it would if every step were a steady one."""
    steady, every = summary.value(DATA_WAIT_FRACTION), summary.value(DATA_WAIT_ALL_FRACTION)
    if steady is None or every is None or steady >= 1.0:
        return None
    # Without it all steps would be shorter, and the steady share one of what is left.
    return max(0.0, every - steady) * all_steps_s(summary) / (1.0 - steady)


def steps_fraction(summary: Summary) -> float:
    """Share of the fit that steps take; 0 where there was none."""
    fit_s = own_fit_s(summary)
    return all_steps_s(summary) / fit_s if fit_s else 0.0


def setting(summary: Summary, name: str) -> float | None:
    """A number from the run's configuration or hardware; `None` when it is not known."""
    for settings in (summary.run.config, summary.run.hardware):
        value = settings.get(name)
        if isinstance(value, (int, float)):
            return value
    return None
