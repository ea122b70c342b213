"""Differences between the traces of two runs: device time and operators, the largest first.

The lowest rank that has a trace on both sides stands for its run.  Times are per step.
"""

from collections.abc import Mapping, Sequence

from trainperf.analysis.roofline.speed_of_light import operators_s
from trainperf.comparison.results import TraceDifference, Where
from trainperf.core.findings import LIMITS
from trainperf.traces.capture_files import CaptureReport
from trainperf.traces.results import RankTrace
from trainperf.traces.thresholds import THRESHOLDS


_TIMES = {
    "compute": "compute_s",
    "idle: data wait": "idle_data_wait_s",
    "idle: host-bound": "idle_host_bound_s",
    "idle: sync": "idle_sync_s",
    "idle: other": "idle_other_s",
    "communication, exposed": "comm_exposed_s",
    "copies to the device": "h2d_s",
    "data wait": "data_wait_s",
    "operators on the host": "cpu_op_s",
}


def trace_differences(
    before: Sequence[CaptureReport], after: Sequence[CaptureReport]
) -> tuple[TraceDifference, ...]:
    """What differs, the largest first; empty unless both sides have a trace with steps.

    Args:
        before: Captures of a run.
        after: Those of the other.
    """
    ranks_before, ranks_after = _latest(before), _latest(after)
    if not ranks_before or not ranks_after:
        return ()
    # Of runs that share no traced rank the lowest of each.
    shared = ranks_before.keys() & ranks_after.keys()
    old = ranks_before[min(shared or ranks_before)]
    new = ranks_after[min(shared or ranks_after)]
    before_s, after_s = _times(old), _times(new)
    every = [
        TraceDifference(kind="time", name=name, before_s=before_s[name], after_s=after_s[name])
        for name in before_s
        if name in after_s
    ]
    every += _of_operators(old, new)
    least_s = LIMITS.trifle * old.totals.step_s
    large = [difference for difference in every if _size_s(difference) >= least_s]
    return tuple(sorted(large, key=_size_s, reverse=True))


def _size_s(difference: TraceDifference) -> float:
    return abs(difference.after_s - difference.before_s)


def _latest(captures: Sequence[CaptureReport]) -> dict[int, RankTrace]:
    """The ranks of the last capture that has steps, by rank."""
    for capture in reversed(captures):
        ranks = {rank.rank or 0: rank for rank in capture.ranks if rank.steps}
        if ranks:
            return ranks
    return {}


def _of_operators(old: RankTrace, new: RankTrace) -> list[TraceDifference]:
    """Of the top operators; what only one trace lists took less than the other's last one.

    Where that bound is longer than what it takes in its own list, the difference is not known.
    """
    before, after = operators_s(old), operators_s(new)
    before_last_s, after_last_s = _last_s(old, before), _last_s(new, after)
    differences = []
    for name in dict.fromkeys([*before, *after]):
        before_s = before.get(name, before_last_s)
        after_s = after.get(name, after_last_s)
        below: Where | None = None
        if name not in before and before_last_s:
            below = "before"
        elif name not in after and after_last_s:
            below = "after"
        if below is not None and (below == "before") != (before_s < after_s):
            continue
        differences.append(
            TraceDifference(
                kind="operator", name=name, before_s=before_s, after_s=after_s, below=below
            )
        )
    return differences


def _last_s(rank: RankTrace, times: Mapping[str, float]) -> float:
    """What an operator that is not listed takes at most: 0 where all are listed."""
    return min(times.values(), default=0.0) if len(rank.top_operators) >= THRESHOLDS.rows else 0.0


def _times(rank: RankTrace) -> dict[str, float]:
    """Means over its steps, of what was measured in every one of them."""
    means: dict[str, float] = {}
    for name, field in _TIMES.items():
        values = [getattr(step, field) for step in rank.steps]
        if None not in values:
            means[name] = sum(values) / len(values)
    return means
