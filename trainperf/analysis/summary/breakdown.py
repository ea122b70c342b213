"""Time split and speed of light of a run's step, from everything that the run recorded."""

from collections.abc import Sequence

import msgspec
import numpy as np

from trainperf.analysis.roofline.roofline import Roofline
from trainperf.analysis.roofline.speed_of_light import SpeedOfLight, speed_of_light
from trainperf.analysis.roofline.time_split import DeviceShares, StepFacts, dimensions
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.formatting.units import step_range
from trainperf.core.loop_kind import imported_from
from trainperf.core.readings import ALLREDUCE_TAIL_FRACTION, FLOPS_PER_S, HFU, MFU
from trainperf.traces.capture_files import CaptureReport
from trainperf.traces.results import RankTrace


def with_time_split(
    summary: Summary,
    audit: StepAudit | None,
    light: Roofline | None,
    captures: Sequence[CaptureReport],
    *,
    typical: Roofline | None = None,
) -> Summary:
    """The summary with its dimensions and, where a step was audited, its speed of light.

    Args:
        summary: The summary without them.
        audit: The audit of one step.
        light: That step against its chip.
        captures: Traces that were read.
        typical: As `light`, of a step as large as the steady ones; see `Evidence`.
    """
    if imported_from(summary.run.config):
        return summary  # a log has neither; what it divides are the phases
    phases_s = summary.phases_s()
    # The mean, unlike `allreduce_tail_s`: shares of a mean step must add up.
    tail_fraction = summary.value(ALLREDUCE_TAIL_FRACTION) or 0.0
    shares = (_shares(report, rank) for report in reversed(captures) for rank in report.ranks)
    waits_s = {at.point: float(np.mean(at.wait_s)) for at in summary.synchronisation if at.wait_s}
    apart = {"loop", *(["backward"] if tail_fraction else [])}
    facts = StepFacts(
        phases_s=phases_s,
        tail_s=tail_fraction * sum(phases_s.values()),
        loop_wait_s=waits_s.get("loop", 0.0),
        # What the mean rank waits beyond the last one.
        skews_s={
            at.point: waits_s[at.point] - at.transfer_s
            for at in summary.synchronisation
            if at.point in waits_s and at.point not in apart
        },
        ahead=summary.run.device != "cpu",
        # Before there is a steady step the audited one has to do.
        light=typical if summary.run.steady_steps else light,
        timed=audit is not None and audit.timed,
        # Of the latest trace in which a device worked, on the lowest rank that has one.
        trace=next((each for each in shares if each is not None), None),
    )
    speed = None
    if audit is not None and light is not None:
        # Times of the warm-up do not show how fast a step is.
        speed = speed_of_light(light, audit, {} if typical is None else phases_s, typical)
        summary, speed = _with_one_mfu(summary, speed)
    return msgspec.structs.replace(summary, dimensions=dimensions(facts), light=speed)


def _with_one_mfu(summary: Summary, speed: SpeedOfLight) -> tuple[Summary, SpeedOfLight]:
    """Readings and speed of light with the same MFU and HFU.

    Those of the readings, which stand on the chip table; of a chip that is not in it, those by the
    peak that was measured.
    """
    readings = dict(summary.readings)
    for name, share in {MFU: speed.mfu, HFU: speed.hfu}.items():
        if readings[name].value is None and share is not None:
            readings[name] = msgspec.structs.replace(
                readings[name], value=share, n=readings[FLOPS_PER_S].n, reason=None
            )
    speed = msgspec.structs.replace(speed, mfu=readings[MFU].value, hfu=readings[HFU].value)
    return msgspec.structs.replace(summary, readings=readings), speed


def _shares(report: CaptureReport, rank: RankTrace) -> DeviceShares | None:
    totals = rank.totals
    busy, compute = totals.gpu_busy_fraction, totals.compute_fraction
    if busy is None or compute is None:
        return None
    # Exposed communication is in seconds per step; busy time, known in both, converts it.
    share_per_s = busy / totals.gpu_busy_s if totals.gpu_busy_s else 0.0
    not_compute = max(0.0, busy - compute)
    comm = min((totals.comm_exposed_s or 0.0) * share_per_s, not_compute)
    host, sync = totals.idle_host_bound_fraction or 0.0, totals.idle_sync_fraction or 0.0
    first = report.capture.first_index
    return DeviceShares(
        steps=step_range(first, first + report.capture.complete_steps - 1),
        compute=compute,
        comm_exposed=comm,
        copies_exposed=not_compute - comm,
        idle_host_bound=host,
        idle_sync=sync,
        idle_other=max(0.0, 1.0 - busy - host - sync),
        kernels=totals.kernels,
    )
