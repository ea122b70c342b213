"""Predicted step times without what ranks wait for, and where a job's device time went.

A step of several ranks lasts until the last of them has arrived at each synchronisation point.  Had
it arrived with the typical other rank, the step would have been shorter by what it came after that
one.  Delays at several points add up where host and device work in step; on an asynchronous device
they are the same delay seen twice, and the larger one counts.

Worked example: a step of 60 ms in which rank 3 arrives 9 ms after the others, and the first of
those it held up waits 8 ms longer than it does.  As fast as the typical rank it would save 8 ms: 52
ms.  Over 64 devices and an hour of such steps, 8.5 device-hours are lost to it.
"""

import math
from collections.abc import Iterable, Sequence

from trainperf.analysis.run.journal import Journal
from trainperf.analysis.summary.ranks import DeviceTime, WhatIf
from trainperf.analysis.summary.schema import Summary, SyncPoint
from trainperf.core.findings import COLD, REFILL_S
from trainperf.core.phases import GAPS, Phase
from trainperf.core.readings import (
    ALLREDUCE_TAIL_S,
    DATA_STALL_FRACTION,
    STEP_MEAN_S,
    phase_reading,
)


STRAGGLERS, STALL, REDUCTIONS = "stragglers", "data stall", "reductions"
"""What steps lose; the rest of the parts are gaps, by label, and `steps`."""
STEPS = "steps"
"""Time in steps that is not lost to any of them."""


def what_if(summary: Summary) -> WhatIf | None:
    """The predictions for a mean steady step; `None` without steps whose waits are known."""
    step_s, points = summary.value(STEP_MEAN_S), summary.synchronisation
    if not step_s or not points:
        return None
    in_step = summary.run.device == "cpu"
    without_s = max(0.0, step_s - saved_s(points, "named_s", in_step=in_step))
    transfer_s = _transfer_s(summary)
    below_s, above_s = _uncertain_s(summary, without_s, transfer_s or 0.0)
    return WhatIf(
        step_s=step_s,
        ranks=tuple(dict.fromkeys(late.rank for point in points for late in point.late)),
        without_ranks_s=without_s,
        even_s=max(0.0, step_s - saved_s(points, "even_s", in_step=in_step)),
        hidden_s=None if transfer_s is None else max(0.0, step_s - transfer_s),
        below_s=below_s,
        above_s=above_s,
    )


def _transfer_s(summary: Summary) -> float | None:
    """What even the last rank waits for the all-reduce; `None` where no tail was measured.

    Of shards the smallest wait in backward is the whole phase, with what is computed there.
    """
    if summary.value(ALLREDUCE_TAIL_S) is None:
        return None
    return next((p.transfer_s for p in summary.synchronisation if p.point == "backward"), None)


def _uncertain_s(
    summary: Summary, step_s: float, transfer_s: float
) -> tuple[float | None, float | None]:
    """By how much a predicted step may turn out shorter and longer; `None` with too few steps.

    What varies between batches of steps, of all points together; and on a host what waiting itself
    does.  A rank that waits finds its caches cold, and leaves to the others the caches, the cores
    and the memory that they have in common: up to `REFILL_S`, either way.  What it has to send has
    long been sent when the last one comes: of two that arrive together each waits for both halves
    of a reduction, twice the *transfer_s* of the last one.  Where there are fewer CPUs than threads
    and workers, what is computed at once takes as many times longer.
    """
    varies_s = 0.0
    for point in summary.synchronisation:
        if point.margin_s is None:
            return None, None
        varies_s = math.hypot(varies_s, point.margin_s)
    if summary.run.device != "cpu":
        return varies_s, varies_s + _covered_s(summary)
    waiting_s = min(REFILL_S, step_s * (1 - 1 / COLD))
    host = summary.host
    crowd = 1.0 if host is None else max(1.0, host.demand / host.cpus_per_rank)
    below_s = min(step_s, varies_s + waiting_s)
    return below_s, varies_s + max(waiting_s, transfer_s, step_s * (crowd - 1))


def _covered_s(summary: Summary) -> float:
    """What is saved on the hosts only: an asynchronous device may have been at work meanwhile.

    A delay that reaches the all-reduce is one of the devices.  Of one after it, seen between two
    steps alone, no record tells how much the devices' own work covers.
    """
    whole_s = saved_s(summary.synchronisation, "named_s", in_step=False)
    reduced = (point for point in summary.synchronisation if point.point == "backward")
    return whole_s - saved_s(reduced, "named_s", in_step=False)


def saved_s(points: Iterable[SyncPoint], name: str, *, in_step: bool) -> float:
    """What a step would save at all its points together, by one of their fields."""
    saved = [float(getattr(point, name)) for point in points]
    return (sum(saved) if in_step else max(saved, default=0.0)) if saved else 0.0


def device_time(summary: Summary, journals: Sequence[Journal]) -> DeviceTime | None:
    """Where the time of all ranks went, whose file was read; one process drives one device.

    What a steady step loses is taken for every step.  Time of a gap counts on every rank that had
    it, with what it waited there for others.  `None` for a single rank.
    """
    whole_s = sum(journal.fit_ns for journal in journals) / 1e9
    if len(journals) < 2 or not whole_s or not summary.run.steps:
        return None
    in_steps_s = sum(sum(journal.phase_ns) for journal in journals) / 1e9
    steps = sum(journal.steps for journal in journals)
    per_step = _lost_per_step(summary)
    parts_s = {name: steps * lost_s for name, lost_s in per_step.items() if lost_s > 0}
    parts_s[STEPS] = max(0.0, in_steps_s - sum(parts_s.values()))
    for gap in GAPS:
        spent_s = sum(journal.gap_ns.get(gap.label, 0) for journal in journals) / 1e9
        if spent_s:
            parts_s[gap.label] = spent_s
    return DeviceTime(devices=len(journals), whole_s=whole_s, parts_s=parts_s)


def _lost_per_step(summary: Summary) -> dict[str, float]:
    """Seconds of a typical rank's steady step, by what loses them."""
    step_s, predicted = summary.value(STEP_MEAN_S), summary.what_if
    if not step_s:
        return {}
    lost_s = {STALL: _stall_s(summary)}
    if predicted is not None:
        lost_s = {STRAGGLERS: predicted.step_s - predicted.even_s, **lost_s}
        if predicted.hidden_s is not None:
            lost_s[REDUCTIONS] = predicted.step_s - predicted.hidden_s
    return lost_s


def _stall_s(summary: Summary) -> float:
    """What the typical rank's device waits for data: a late rank's excess is the stragglers'."""
    step_s = summary.value(STEP_MEAN_S) or 0.0
    stalled = summary.reading(DATA_STALL_FRACTION)
    if summary.run.device != "cpu" and stalled is not None and stalled.value is not None:
        return step_s * _typical(stalled.per_rank, stalled.value)
    waited = summary.reading(phase_reading(Phase.DATA_WAIT.label))
    if summary.run.device != "cpu" or waited is None or waited.value is None:
        return 0.0
    return _typical(waited.per_rank, waited.value)


def _typical(of_ranks: Sequence[float | None], value: float) -> float:
    """The lower median of the ranks that have one."""
    values = sorted(each for each in of_ranks if each is not None)
    return values[(len(values) - 1) // 2] if values else value
