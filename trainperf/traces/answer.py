"""Answer of a trace in one to three sentences: what the device does with its time."""

from collections.abc import Sequence

from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, plural, ranks_named, share
from trainperf.traces.results import RankTrace, TraceReport, mean


_CAUSES = (
    ("idle_data_wait_fraction", "because it waits for the DataLoader"),
    ("idle_host_bound_fraction", "because the host launches too late"),
    ("idle_sync_fraction", "while the host waits in synchronising calls"),
    ("idle_other_fraction", "between kernels that had been launched"),
)


def answer(report: TraceReport) -> str:
    """What the device does with its time, and what is lost; of several ranks their mean."""
    if not report.ranks or not any(rank.steps for rank in report.ranks):
        return "No step was recorded."
    worked = [rank for rank in report.ranks if rank.totals.gpu_busy_fraction is not None]
    sentences = _of_device(worked) if worked else [_of_host(report.ranks)]
    return " ".join([*sentences, *_late(report)])


def _of_device(ranks: Sequence[RankTrace]) -> list[str]:
    busy = _mean([rank.totals.gpu_busy_fraction for rank in ranks])
    who = "The GPU is" if len(ranks) == 1 else f"On average over {len(ranks)} ranks the GPU is"
    sentences = [f"{who} {_doing(ranks, busy)}."]
    whole_s = _mean([rank.period_s for rank in ranks])
    lost = []
    exposed_s = _mean([rank.totals.comm_exposed_s for rank in ranks])
    if exposed_s > 0 and exposed_s >= LIMITS.worth * whole_s:
        lost.append(
            f"spends {duration(exposed_s)} ({share(exposed_s / whole_s)}) in exposed communication"
        )
    waited_s = _mean([rank.totals.data_wait_s for rank in ranks])
    lost_s = _mean([rank.totals.data_wait_exposed_s for rank in ranks])
    if lost_s > 0 and lost_s >= LIMITS.worth * whole_s:
        lost.append(
            f"waits {duration(waited_s)} for data, {duration(lost_s)} of it with the GPU idle"
        )
    if lost:
        # A step may take longer on the device than its marks on the host are apart.
        host_s = _mean([rank.host_step_s for rank in ranks])
        where = " on the device" if whole_s > (1 + LIMITS.worth) * host_s else ""
        sentences.append(f"A step of {duration(whole_s)}{where} {' and '.join(lost)}.")
    return sentences


def _doing(ranks: Sequence[RankTrace], busy: float) -> str:
    if 1.0 - busy < LIMITS.notable:
        computing = _mean([rank.totals.compute_fraction for rank in ranks])
        return f"busy {share(busy)} of its recorded span, {share(computing)} computing"
    causes = [(_mean([getattr(rank.totals, name) for rank in ranks]), why) for name, why in _CAUSES]
    parts = [
        f"{share(part)} {why}" for part, why in sorted(causes, reverse=True) if part >= LIMITS.worth
    ]
    return f"idle {share(1.0 - busy)} of its recorded span, {' and '.join(parts[:2])}"


def _of_host(ranks: Sequence[RankTrace]) -> str:
    """Without a device the host is what there is: its largest known part."""
    whole_s = _mean([rank.period_s for rank in ranks])
    parts = [
        (_mean([rank.totals.data_wait_s for rank in ranks]), "waiting for data"),
        (_mean([rank.totals.comm_s for rank in ranks]), "in collectives on the host"),
        (_mean([rank.totals.cpu_op_s for rank in ranks]), "in operators"),
    ]
    least_s = LIMITS.worth * whole_s
    # A step that ended as it began spends nothing anywhere.
    worth = [part for part in sorted(parts, reverse=True) if part[0] >= least_s > 0]
    doing = ", ".join(f"{duration(part)} ({share(part / whole_s)}) {what}" for part, what in worth)
    spends = f" spends {doing}" if doing else " is mostly outside of operators"
    return f"No device in this trace: a step of {duration(whole_s)} on the host{spends}."


def _late(report: TraceReport) -> list[str]:
    late = sorted({each.rank for each in report.stragglers})
    worst_s = max((each.wait_s for each in report.stragglers), default=0.0)
    if not late or worst_s < LIMITS.worth * max(rank.period_s for rank in report.ranks):
        return []
    several = len(late) > max(1, len(report.ranks) // 2)
    who = f"one of {plural(len(late), 'rank')}" if several else ranks_named(late)
    return [f"Other ranks wait up to {duration(worst_s)} per step for {who}."]


def _mean(values: Sequence[float | None]) -> float:
    return mean(values) or 0.0
