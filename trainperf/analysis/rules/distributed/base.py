"""Share of a step that gradient reductions take: shared by the rules of `distributed`."""

from trainperf.analysis.rules.base import Evidence, phase_fraction, setting, worst
from trainperf.analysis.summary.schema import Summary
from trainperf.core.phases import Phase
from trainperf.core.readings import ALLREDUCE_TAIL_FRACTION, STEP_MEAN_S


def redundant(summary: Summary) -> float:
    """Share of the all-reduces that an accumulating loop could hold back; 0 where not known.

    Of a step's reductions one per backward of its last micro-batch is needed.
    """
    reduced = setting(summary, "allreduces_per_step")
    passes = setting(summary, "micro_batches_per_step")
    if reduced is None or passes is None or passes <= 1 or reduced <= 1:
        return 0.0
    return 1 - max(1.0, reduced / passes) / reduced


def reduction_fraction(evidence: Evidence, *, named_only: bool = False) -> float | None:
    """Share of the steady step that gradient reductions take at most; `None` if not measured.

    The tail is that of one bucket at least; the others compete with backward for a CPU while it
    runs: all of them, or backward as a whole, is a bound there.  On a device it is what a capture
    saw of communication, or else the tail that nothing hides.  What ranks lose to a late one is the
    straggler's and excluded; with *named_only* what they lose in turn, which fewer reductions
    would save in part, is included.
    """
    summary = evidence.summary
    tail, step_s = worst(summary, ALLREDUCE_TAIL_FRACTION), summary.value(STEP_MEAN_S)
    if tail is None or not step_s:
        return None
    late = _late_s(summary, named_only=named_only) / step_s
    exposed = max(tail - late, 0.0)
    if summary.run.device == "cpu":
        backward = phase_fraction(summary, Phase.BACKWARD)
        if backward is None:
            return None
        buckets = setting(summary, "ddp_buckets")
        most = max(backward - late, 0.0)
        return most if buckets is None else min(most, exposed * buckets)
    return min(max(exposed, (_communication_s(evidence) or 0.0) / step_s), 1.0)


def _late_s(summary: Summary, *, named_only: bool) -> float:
    """What the fastest rank waits beyond the last one for reductions, per step."""
    points = [point for point in summary.synchronisation if point.point == "backward"]
    return sum(p.lost_s for p in points if p.straggler is not None or not named_only)


def _communication_s(evidence: Evidence) -> float | None:
    """Device time of communication in a step of the last capture, on the slowest rank."""
    for capture in reversed(evidence.captures):
        spent = [rank.totals.comm_s for rank in capture.ranks if rank.totals.comm_s is not None]
        if spent:
            return max(spent)
    return None
