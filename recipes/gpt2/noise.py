"""The gains that this machine can show, by the noise that the first stage measured."""

import math

from recipes.gpt2.outcomes import StageOutcome
from trainperf.core.formatting.units import share, times
from trainperf.core.stats.sequential import Looks, pairs_to_decide


SHOWN = 1.10
"""A gain that the pairs planned must be able to show; else the machine is too noisy for them."""

_GAINS = tuple(1 + percent / 100 for percent in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50, 100))


def least_gain(outcome: StageOutcome, most: int) -> float | None:
    """The smallest gain that *most* pairs show, if they differ as those of *outcome* did.

    `None` where it measured none.
    """
    gain = outcome.speedup
    if gain is None or not outcome.runs:
        return None
    pairs, reach = len(outcome.runs), math.log(gain.high / gain.value)
    if pairs >= most:
        return math.exp(reach)
    looks = Looks(most=most)
    shown = (
        each
        for each in _GAINS
        if pairs_to_decide((each, each * math.exp(reach)), pairs, looks, margin=0.0) is not None
    )
    return next(shown, _GAINS[-1])


def warning(outcome: StageOutcome, least: float, planned: int, allowed: tuple[int, float]) -> str:
    """What the noise means for the stages that follow, and what else can be done.

    Args:
        outcome: That of the first stage.
        least: The smallest gain that the pairs planned would show.
        planned: So many.
        allowed: Pairs from here on, and the gain that these show.
    """
    pairs, shown = allowed
    return (
        f"This machine is too noisy: runs of one script differ by {share(outcome.noise or 0.0)}, "
        f"so {planned} pairs show a gain from {times(least)} on only. From here there are up to "
        f"{pairs} pairs per stage, and only stages that are expected to bring {times(shown)} or "
        "more. For all stages: a quiet machine, or more time (--minutes)."
    )
