"""What made the difference?  Traces of both runs: where the device's time and the operators' went.

The lowest rank that has a trace on both sides stands for its run.  Times are per step.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from trainperf.comparison.results import Explained, Where
from trainperf.traces.capture_files import CaptureReport
from trainperf.traces.metrics.operators import TOP
from trainperf.traces.results import RankTrace


MOST = 12
"""Differences that are listed."""

LEAST = 0.005
"""Share of the step that a difference must be to be listed."""

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


def explained(
    before: Sequence[CaptureReport], after: Sequence[CaptureReport]
) -> tuple[Explained, ...]:
    """What differs, the largest first; empty unless both sides have a trace with steps.

    Args:
        before: Captures of a run.
        after: Those of the other.
    """
    traced, traced_after = _latest(before), _latest(after)
    if not traced or not traced_after:
        return ()
    # Of runs that share no traced rank the lowest of each.
    shared = traced.keys() & traced_after.keys()
    one = traced[min(shared or traced)]
    other = traced_after[min(shared or traced_after)]
    found = [*_of_times(_times(one), _times(other)), *_of_operators(one, other)]
    least_s = LEAST * one.totals.step_s
    large = [one for one in found if abs(one.after_s - one.before_s) >= least_s]
    return tuple(sorted(large, key=lambda one: -abs(one.after_s - one.before_s))[:MOST])


def _latest(captures: Sequence[CaptureReport]) -> dict[int, RankTrace]:
    """By rank, those of the last capture that has steps."""
    for capture in reversed(captures):
        ranks = {rank.rank or 0: rank for rank in capture.ranks if rank.steps}
        if ranks:
            return ranks
    return {}


def _of_times(one: Mapping[str, float], other: Mapping[str, float]) -> list[Explained]:
    """Of what was measured in both."""
    return [
        Explained(kind="time", name=name, before_s=one[name], after_s=other[name])
        for name in one
        if name in other
    ]


def _of_operators(one: RankTrace, other: RankTrace) -> list[Explained]:
    """Only the top ones are listed: what is in one list alone takes less than the other's last.

    Where that is longer than what it takes in its own list, nothing is known of the difference.
    """
    before, after = _operators(one), _operators(other)
    last_s = [
        min(times.values(), default=0.0) if len(rank.top_operators) >= TOP else 0.0
        for rank, times in ((one, before), (other, after))
    ]
    found = []
    for name in dict.fromkeys([*before, *after]):
        below: Where | None = None
        if name not in before and last_s[0]:
            below = "before"
        elif name not in after and last_s[1]:
            below = "after"
        spent = before.get(name, last_s[0]), after.get(name, last_s[1])
        if below is not None and (below == "before") != (spent[0] < spent[1]):
            continue
        found.append(
            Explained(kind="operator", name=name, before_s=spent[0], after_s=spent[1], below=below)
        )
    return found


def _times(rank: RankTrace) -> dict[str, float]:
    """Means over its steps, of what was measured in every one of them."""
    means: dict[str, float] = {}
    for name, field in _TIMES.items():
        values = [getattr(step, field) for step in rank.steps]
        if None not in values:
            means[name] = sum(values) / len(values)
    return means


def _operators(rank: RankTrace) -> dict[str, float]:
    """Self time of each per step: on the device where there is one, else on the host."""
    spent: dict[str, float] = defaultdict(float)
    for operator in rank.top_operators:
        own = operator.self_device_s if rank.device_worked else operator.self_cpu_s
        spent[operator.name] += (own or 0.0) / len(rank.steps)
    return spent
