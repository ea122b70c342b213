"""Time split and speed of light of a run's step, from everything that the run recorded."""

from collections.abc import Collection, Sequence

import msgspec

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
    facts = StepFacts(
        phases_s=phases_s,
        tail_s=tail_fraction * sum(phases_s.values()),
        loop_wait_s=_loop_wait_s(summary),
        skews_s=_skews_s(summary, {"loop", *(["backward"] if tail_fraction else [])}),
        ahead=summary.run.device != "cpu",
        # Before there is a steady step the audited one has to do.
        light=typical if summary.run.steady_steps else light,
        timed=audit is not None and audit.device == "cpu",
        trace=_device_shares(captures),
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
    shares = {MFU: speed.mfu, HFU: speed.hfu}
    for name, share in shares.items():
        reading = summary.readings[name]
        if reading.value is not None:
            shares[name] = reading.value
        elif share is not None:
            measured = msgspec.structs.replace(
                reading, value=share, n=summary.readings[FLOPS_PER_S].n, reason=None
            )
            readings = {**summary.readings, name: measured}
            summary = msgspec.structs.replace(summary, readings=readings)
    return summary, msgspec.structs.replace(speed, mfu=shares[MFU], hfu=shares[HFU])


def _loop_wait_s(summary: Summary) -> float:
    waits_s = next((at.wait_s for at in summary.synchronisation if at.point == "loop"), ())
    return sum(waits_s) / len(waits_s) if waits_s else 0.0


def _skews_s(summary: Summary, but: Collection[str]) -> dict[str, float]:
    """Phase to what the mean rank waits there beyond the last one, but for some phases."""
    return {
        at.point: sum(at.wait_s) / len(at.wait_s) - at.transfer_s
        for at in summary.synchronisation
        if at.wait_s and at.point not in but
    }


def _device_shares(captures: Sequence[CaptureReport]) -> DeviceShares | None:
    """Those of the latest trace in which a device worked, on the lowest rank that has one."""
    every = (_shares(report, rank) for report in reversed(captures) for rank in report.ranks)
    return next((shares for shares in every if shares is not None), None)


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
