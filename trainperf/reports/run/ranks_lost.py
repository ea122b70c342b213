"""Costs of late ranks in words: the step without them."""

from trainperf.analysis.summary.schema import Summary, WhatIf
from trainperf.core.formatting.units import duration, ranks_named


def ranks_lost(summary: Summary) -> list[str]:
    """A sentence about the step; none for a single rank."""
    predicted = summary.what_if
    return [] if predicted is None or len(summary.run.ranks) < 2 else [_without(predicted)]


def _without(predicted: WhatIf) -> str:
    """E.g. `up to 17.5 ms per step: 82.5 ms instead of 100 ms if rank 3 is as fast as …`.

    It is the most that can be saved: devices at work may cover a part of the delay, and ranks that
    no longer wait take caches and CPUs from each other.
    """
    step_s, without_s = predicted.step_s, predicted.even_s
    who = "every rank is as fast as the median one"
    if predicted.ranks:
        verb = "is" if len(predicted.ranks) == 1 else "are"
        who = f"{ranks_named(predicted.ranks)} {verb} as fast as the others"
        without_s = predicted.without_ranks_s
    lost = f"up to {duration(step_s - without_s)} per step"
    return f"{lost}: {duration(without_s)} instead of {duration(step_s)} if {who}"
