"""What the rules about gradient reductions have in common: how much of a step they can take."""

from trainperf.evidence import Evidence
from trainperf.phases import Phase
from trainperf.results import Summary
from trainperf.rules.base import phase_fraction, setting, value, worst


def redundant(summary: Summary) -> float:
    """Share of the all-reduces that an accumulating loop could hold back; 0 where not known.

    Of a step's reductions one per backward of its last micro-batch is needed.
    """
    reduced = setting(summary, "allreduces_per_step")
    passes = setting(summary, "micro_batches_per_step")
    if reduced is None or passes is None or passes <= 1 or reduced <= 1:
        return 0.0
    return 1 - max(1.0, reduced / passes) / reduced


def reduction_fraction(evidence: Evidence) -> float | None:
    """Share of the steady step that gradient reductions take at most; `None` if not measured.

    On a CPU they compete with backward for it, so that only backward as a whole is a bound.  On a
    device it is what a capture saw of communication, or else the tail that nothing hides.
    """
    summary = evidence.summary
    tail, step_s = worst(summary, "allreduce_tail_fraction"), value(summary, "step_mean_s")
    if tail is None or not step_s:
        return None
    if summary.run.device == "cpu":
        return phase_fraction(summary, Phase.BACKWARD)
    seen = communication_s(evidence)
    return tail if seen is None else min(max(tail, seen / step_s), 1.0)


def communication_s(evidence: Evidence) -> float | None:
    """Device time of communication in a step of the last capture, on the slowest rank."""
    for capture in reversed(evidence.captures):
        spent = [rank.totals.comm_s for rank in capture.ranks]
        known = [one for one in spent if one is not None]
        if known:
            return max(known)
    return None
