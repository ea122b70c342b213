"""Rule about code of the user that computes no tensor while the step waits for it."""

import msgspec

from trainperf.analysis.rules.base import Evidence, TraceTime, phase_fraction, warm_bound
from trainperf.analysis.rules.host.host_code import host_code
from trainperf.analysis.rules.host.unnamed_time import unnamed_fraction
from trainperf.analysis.summary.schema import PlainCode, Summary
from trainperf.core.findings import LIMITS, Finding, amdahl, costs
from trainperf.core.formatting.units import share
from trainperf.core.phases import Phase
from trainperf.core.readings import HOST_BOUND_FRACTION


TRACE_TIME: TraceTime = "host"
LEAST = 0.15
"""Share of the step from which on it is worth a finding; its interval excludes `LIMITS.notable`."""

_WORK = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


def python_in_step(evidence: Evidence) -> Finding | None:
    """Samples see one function in Python, a sleep, files or numpy for much of the step.

    A line that may be running an operator is never meant.  Beside a device it matters only where
    the device waits for the host.  A step that was audited on a CPU has `host_code`.

    Wrong where: the function runs once in many steps, and the samples are few: see their number.
    To confirm: time the function by itself; `trainperf prove` without the call.
    """
    summary = evidence.summary
    largest = _largest(summary)
    if largest is None or not _host_decides(summary) or host_code(evidence) is not None:
        return None
    of_step, phase, host = largest
    lost = of_step * host.line.fraction
    if lost < LEAST or of_step * host.low < LIMITS.notable:
        return None
    name, place = host.line.subject, "the loop" if phase is Phase.OTHER else phase.label
    ends = share(of_step * host.low), share(of_step * host.high)
    samples = f"{ends[0]} to {ends[1]} of the step (95 % CI, {host.line.samples} samples)"
    finding = Finding(
        id="python_in_step",
        title=f"{name} in {place} takes {share(lost)} of the step without a tensor operation",
        advice=f"Move what {name} does out of the step",
        evidence=(
            f"{host.line.name}: {share(host.line.fraction)} of {phase.label}, {samples}",
            f"running there: {', '.join(host.names)}",
        ),
        action="replace a Python loop by tensor operations; do the rest in the dataset's workers, "
        "every n-th step, or after the fit",
        **costs(lost, confidence="high" if summary.run.device == "cpu" else "medium"),
        where=host.line.where,
        confirm=f"trainperf compare BEFORE AFTER: phase_{phase.label}_s falls",
    )
    # The bound is of the share's upper end.
    high = msgspec.structs.replace(
        finding, fraction=of_step * host.high, gain_upper_bound=amdahl(of_step * host.high)
    )
    return msgspec.structs.replace(warm_bound(high, summary), fraction=lost)


def _largest(summary: Summary) -> tuple[float, Phase, PlainCode] | None:
    """The phase that loses most by it, with its share of the step."""
    # A loop that brackets none of its work has all of it in `other`.
    phases = _WORK if unnamed_fraction(summary) is not None else (*_WORK, Phase.OTHER)
    by_phase = {lines.slot: lines.host for lines in summary.lines}
    candidates = [
        (of_step, phase, host)
        for phase in phases
        if (host := by_phase.get(phase.label)) is not None
        and (of_step := phase_fraction(summary, phase)) is not None
    ]
    return max(candidates, key=lambda item: item[0] * item[2].line.fraction, default=None)


def _host_decides(summary: Summary) -> bool:
    if summary.run.device == "cpu":
        return True
    return (summary.value(HOST_BOUND_FRACTION) or 0.0) >= LIMITS.host_bound
