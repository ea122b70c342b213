"""Rule about a part of the step that no phase names."""

from trainperf.analysis.rules.base import Evidence, phase_fraction, steady_step_s
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import duration, share
from trainperf.core.phases import Phase
from trainperf.core.readings import OVERHEAD_S


_WORK = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


def unnamed_time(evidence: Evidence) -> Finding | None:
    """Much of the step is in `other`: it names the function that was seen there most.

    What slow steps that come back spend there is theirs.  A loop that brackets none of its work
    has everything there, the work included: nothing can be said about it.
    """
    summary = evidence.summary
    lost, step_s = unnamed_fraction(summary), steady_step_s(summary)
    if lost is None or not step_s or lost < LIMITS.notable:
        return None
    line = summary.owner(Phase.OTHER.label)
    name = line.subject if line else ""
    samples = (
        f"{line.name}: {share(line.fraction)} of that in {line.samples} samples"
        if line
        else "no line was seen in most of it"
    )
    again = 'monitor.phase("callbacks")' if summary.run.loop.name == "plain" else "a callback"
    return Finding(
        id="unnamed_time",
        title=f"{share(lost)} of the step is outside every phase"
        + (f", mostly in {name}" if name else ""),
        advice=f"Lighten {name}" if name else "Name what runs outside every phase",
        evidence=(f"{duration(lost * step_s)} of {duration(step_s)} per step", samples),
        action=f"do the work of {name or 'that code'} every n-th step, or after the fit; put what "
        f"has to stay into {again}",
        **costs(lost, confidence="high" if line else "medium"),
        effort="minutes" if line else "hours",
        where=line.where if line else "",
        confirm="trainperf compare BEFORE AFTER: phase_other_s falls",
    )


def unnamed_fraction(summary: Summary) -> float | None:
    """Share of a steady step that nothing names and no other rule owns; `None` without enough."""
    lost, step_s = phase_fraction(summary, Phase.OTHER), steady_step_s(summary)
    measured = summary.phases_s()
    if lost is None or not step_s or not any(phase.label in measured for phase in _WORK):
        return None
    slow = summary.slow_steps
    if slow is not None and slow.phase == Phase.OTHER.label:
        lost -= slow.phase_fraction * slow.lost_s / (slow.of_steps * step_s)
    return max(0.0, lost - (summary.value(OVERHEAD_S) or 0.0) / step_s)
