"""What does a step spend itself on, and how fast could it be?  From all that a run knows of it."""

from collections.abc import Sequence

import msgspec

from trainperf.analysis.roofline.roofline import Roofline
from trainperf.analysis.roofline.speed_of_light import speed_of_light
from trainperf.analysis.roofline.time_split import DeviceShares, Facts, dimensions
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.formatting.units import step_range
from trainperf.core.phases import PHASES
from trainperf.traces.capture_files import CaptureReport
from trainperf.traces.results import RankTrace


def broken_down(
    summary: Summary,
    audit: StepAudit | None,
    light: Roofline | None,
    captures: Sequence[CaptureReport],
    *,
    typical: Roofline | None = None,
) -> Summary:
    """The summary with its dimensions and, where a step was audited, its speed of light.

    Args:
        summary: What is known without them.
        audit: Of one step.
        light: That step against its chip.
        captures: Traces that were read.
        typical: As `light`, of a step as large as the steady ones; see `Evidence`.
    """
    phases_s = phases_of(summary)
    # Before there is a steady step the audited one has to do.
    divides = typical if summary.run.steady_steps else light
    facts = Facts(
        phases_s=phases_s,
        # The mean, unlike `allreduce_tail_s`: shares of a mean step must add up.
        tail_s=_value(summary, "allreduce_tail_fraction") * sum(phases_s.values()),
        loop_wait_s=_loop_wait_s(summary),
        light=divides,
        timed=audit is not None and audit.device == "cpu",
        trace=_traced(captures),
    )
    speed = None
    if audit is not None and light is not None:
        # A warm-up says nothing about how fast a step is.
        speed = speed_of_light(light, audit, {} if typical is None else phases_s, typical)
    return msgspec.structs.replace(summary, dimensions=dimensions(facts), light=speed)


def phases_of(summary: Summary) -> dict[str, float]:
    """Mean host time of each measured phase, by label: of steady steps, of all if none is steady.

    A phase that nobody brackets is not in it: its time is in `other`.
    """
    if summary.run.steady_steps:
        readings = {phase.label: summary.readings[f"phase_{phase.label}_s"] for phase in PHASES}
        return {label: one.value for label, one in readings.items() if one.value is not None}
    steps = max(1, summary.run.steps)
    spent = {phase.label: summary.ledger_s.get(phase.label) for phase in PHASES}
    return {label: one / steps for label, one in spent.items() if one is not None}


def _value(summary: Summary, name: str) -> float:
    reading = summary.readings.get(name)
    return (reading.value if reading else None) or 0.0


def _loop_wait_s(summary: Summary) -> float:
    waits = [point.wait_s for point in summary.synchronisation if point.point == "loop"]
    return sum(waits[0]) / len(waits[0]) if waits and waits[0] else 0.0


def _traced(captures: Sequence[CaptureReport]) -> DeviceShares | None:
    """The latest trace in which a device worked, on the lowest rank that has one."""
    for report in reversed(captures):
        for rank in report.ranks:
            found = _shares(report, rank)
            if found is not None:
                return found
    return None


def _shares(report: CaptureReport, rank: RankTrace) -> DeviceShares | None:
    totals = rank.totals
    busy, compute = totals.gpu_busy_fraction, totals.compute_fraction
    if busy is None or compute is None:
        return None
    # Exposed communication is known in seconds a step; busy time in both says what share that is.
    per_s = busy / totals.gpu_busy_s if totals.gpu_busy_s else 0.0
    beside = max(0.0, busy - compute)
    comm = min((totals.comm_exposed_s or 0.0) * per_s, beside)
    host, sync = totals.idle_host_bound_fraction or 0.0, totals.idle_sync_fraction or 0.0
    first = report.capture.first_index
    last = first + report.capture.complete_steps - 1
    return DeviceShares(
        steps=step_range(first, last),
        compute=compute,
        comm_exposed=comm,
        copies_exposed=beside - comm,
        idle_host_bound=host,
        idle_sync=sync,
        idle_other=max(0.0, 1.0 - busy - host - sync),
        kernels=totals.kernels,
    )
