"""Costs of late ranks in words: the step without them."""

from trainperf.analysis.summary.schema import Summary, WhatIf
from trainperf.core.formatting.units import Scale, duration, ranks_named


def ranks_lost(summary: Summary) -> list[str]:
    """A sentence about the step; none for a single rank."""
    predicted = summary.what_if
    return [] if predicted is None or len(summary.run.ranks) < 2 else [_without(predicted)]


def _without(predicted: WhatIf) -> str:
    """E.g. `17.5 ms per step: 82.5 ms (80.1–84.9) instead of 100 ms if rank 3 is as fast as …`."""
    step_s, without_s, without = predicted.step_s, predicted.even_s, duration(predicted.even_s)
    who = "every rank is as fast as the median one"
    if predicted.ranks:
        verb = "is" if len(predicted.ranks) == 1 else "are"
        who = f"{ranks_named(predicted.ranks)} {verb} as fast as the others"
        without_s, without = predicted.without_ranks_s, without_ranks(predicted)
    lost = f"{duration(step_s - without_s)} per step"
    return f"{lost}: {without} instead of {duration(step_s)} if {who}"


def without_ranks(predicted: WhatIf) -> str:
    """The step without the late ranks and its interval, e.g. `82.5 ms (80.1–84.9)`."""
    step_s, below_s, above_s = predicted.without_ranks_s, predicted.below_s, predicted.above_s
    if below_s is None or above_s is None:
        return duration(step_s)
    scale = Scale.of(step_s)
    ends = (scale.number(step_s - below_s), scale.number(step_s + above_s))
    return f"{scale.say(step_s)} ({ends[0]}–{ends[1]})"
