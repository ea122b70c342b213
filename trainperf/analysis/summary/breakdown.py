"""Time split and speed of light of a run's step, from everything that the run recorded."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from trainperf.analysis.roofline.roofline import Roofline
from trainperf.analysis.roofline.speed_of_light import speed_of_light
from trainperf.analysis.roofline.time_split import dimensions
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.loop_kind import imported_from
from trainperf.core.readings import ALLREDUCE_TAIL_FRACTION
from trainperf.traces.capture_files import CaptureReport


def with_time_split(
    summary: Summary,
    audit: StepAudit | None,
    light: Roofline | None,
    captures: Sequence[CaptureReport],
    *,
    typical: Roofline | None = None,
    spent_s: Mapping[str, float] | None = None,
) -> Summary:
    """The summary with its dimensions and, where a step was audited, its speed of light.

    Args:
        summary: The summary without them.
        audit: The audit of one step.
        light: That step against its chip.
        captures: Traces that were read.
        typical: As `light`, of a step as large as the steady ones; see `Facts`.
        spent_s: What operators spend of a steady step, and on what; `None` without an audit.
    """
    if imported_from(summary.run.config):
        return summary  # a log has neither; what it divides are the phases
    phases_s = summary.phases_s()
    # What the mean rank waits beyond the last one; between two steps all that it waits.
    waits_s = {
        at.point: float(np.mean(at.wait_s)) - (0.0 if at.point == "loop" else at.transfer_s)
        for at in summary.synchronisation
        if at.wait_s
    }
    # The mean, unlike `allreduce_tail_s`: shares of a mean step must add up.
    tail_fraction = summary.value(ALLREDUCE_TAIL_FRACTION)
    if tail_fraction:
        waits_s["backward"] = tail_fraction * sum(phases_s.values())
    on_device = (
        rank.totals
        for report in reversed(captures)
        for rank in report.ranks
        if None not in (rank.totals.gpu_busy_fraction, rank.totals.compute_fraction)
    )
    split = dimensions(
        phases_s,
        waits_s,
        ahead=summary.run.device != "cpu",
        spent_s=spent_s,
        # Of the latest trace in which a device worked, on the lowest rank that has one.
        trace=next(on_device, None),
    )
    speed = (
        None
        if audit is None or light is None
        # Times of the warm-up do not show how fast a step is.
        else speed_of_light(light, audit, {} if typical is None else phases_s, typical)
    )
    return msgspec.structs.replace(summary, dimensions=split, light=speed)
