"""Differences between the traces of two runs: times, operators and kernels, the largest first.

The lowest rank that has a trace on both sides stands for its run.  Times are per step.
"""

from collections.abc import Mapping, Sequence

from trainperf.analysis.roofline.speed_of_light import operators_s
from trainperf.comparison.results import TraceDifference, Where
from trainperf.core.choice import first_that_holds
from trainperf.core.findings import LIMITS
from trainperf.traces.results import RankTrace, TraceReport
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
    before: Sequence[TraceReport], after: Sequence[TraceReport]
) -> tuple[TraceDifference, ...]:
    """What differs, the largest first; empty unless both sides have a trace with steps.

    Args:
        before: Captures of a run.
        after: Those of the other.
    """
    pair = compared_ranks(before, after)
    return () if pair is None else rank_differences(*pair)


def compared_ranks(
    before: Sequence[TraceReport], after: Sequence[TraceReport]
) -> tuple[RankTrace, RankTrace] | None:
    """The traces that stand for both sides; `None` where one has none with steps."""
    ranks_before, ranks_after = _latest(before), _latest(after)
    if not ranks_before or not ranks_after:
        return None
    # Of runs that share no traced rank the lowest of each.
    shared = ranks_before.keys() & ranks_after.keys()
    return ranks_before[min(shared or ranks_before)], ranks_after[min(shared or ranks_after)]


def rank_differences(old: RankTrace, new: RankTrace) -> tuple[TraceDifference, ...]:
    """What differs between two traces by more than a trifle of the first's step."""
    before_s, after_s = _times(old), _times(new)
    every = [
        TraceDifference(kind="time", name=name, before_s=before_s[name], after_s=after_s[name])
        for name in before_s
        if name in after_s
    ]
    every += _listed("operator", operators_s(old), operators_s(new))
    every += _listed("kernel", _kernels_s(old), _kernels_s(new))
    least_s = LIMITS.trifle * old.totals.step_s
    large = [difference for difference in every if _size_s(difference) >= least_s]
    return tuple(sorted(large, key=_size_s, reverse=True))


def _size_s(difference: TraceDifference) -> float:
    return abs(difference.after_s - difference.before_s)


def _latest(captures: Sequence[TraceReport]) -> dict[int, RankTrace]:
    """The ranks of the last capture that has steps, by rank."""
    for capture in reversed(captures):
        ranks = {rank.rank or 0: rank for rank in capture.ranks if rank.steps}
        if ranks:
            return ranks
    return {}


def _listed(
    kind: str, before: Mapping[str, float], after: Mapping[str, float]
) -> list[TraceDifference]:
    """Of two lists of the longest; what only one has took less than the other's last one.

    Where that bound is longer than what it takes in its own list, the difference is not known.
    """
    before_last_s, after_last_s = _last_s(before), _last_s(after)
    differences = []
    # An older analysis has no list of kernels: that says nothing of them.
    for name in dict.fromkeys([*before, *after]) if before and after else ():
        before_s = before.get(name, before_last_s)
        after_s = after.get(name, after_last_s)
        cases: tuple[tuple[Where | None, bool], ...] = (
            ("before", name not in before and before_last_s > 0),
            ("after", name not in after and after_last_s > 0),
            (None, True),
        )
        below = first_that_holds(*cases)
        if below is not None and (below == "before") != (before_s < after_s):
            continue
        differences.append(
            TraceDifference(kind=kind, name=name, before_s=before_s, after_s=after_s, below=below)
        )
    return differences


def _last_s(times: Mapping[str, float]) -> float:
    """What takes so long at most that it is not listed: 0 where all are listed."""
    return min(times.values()) if len(times) >= THRESHOLDS.rows else 0.0


def _kernels_s(rank: RankTrace) -> dict[str, float]:
    """Seconds of each top kernel per step."""
    return {kernel.name: kernel.total_s / len(rank.steps) for kernel in rank.top_kernels}


def _times(rank: RankTrace) -> dict[str, float]:
    """Means over its steps, of what was measured in every one of them."""
    columns = {name: [getattr(step, of) for step in rank.steps] for name, of in _TIMES.items()}
    return {name: sum(times) / len(times) for name, times in columns.items() if None not in times}
