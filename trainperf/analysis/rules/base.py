"""What is a rule?  A pure function from the evidence of a run to a finding, or to `None`.

`None` means that the rule sees nothing wrong, or that the data it needs is missing: then it says
nothing rather than guess.
"""

from collections.abc import Callable
from typing import Literal

from trainperf.analysis.evidence import Evidence
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.phases import PHASES, Gap, Phase


Rule = Callable[[Evidence], Finding | None]

TraceTime = Literal["data_wait", "communication", "host", "operators"]
"""Time in a trace that shows a finding: data wait, exposed communication, a device idle because of
the host, or operators."""


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


def setting(summary: Summary, name: str) -> float | None:
    """A number from the run's configuration or hardware; `None` when it is not known."""
    for known in (summary.run.config, summary.run.hardware):
        found = known.get(name)
        if isinstance(found, (int, float)):
            return found
    return None
