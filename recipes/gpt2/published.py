"""What have others published for this model?  As they published it, never mixed with ours."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One step time of a published ladder."""

    step_ms: float
    batch: str
    """Beside the first one's."""
    remark: str = ""


LADDER = (
    Rung(step_ms=500, batch="1 ×"),
    Rung(step_ms=380, batch="1 ×", remark="80 ms less are named for it, but 500 − 80 is 420"),
    Rung(step_ms=250, batch="1 ×"),
    Rung(step_ms=325, batch="2 ×", remark="a slower step, and more samples a second"),
    Rung(step_ms=312, batch="2 ×"),
)
"""GPT-2 on an A100-40GB, step times as published."""

SUM = "As published: 3.2 × in samples/s, which is 2 × 500 / 312."

DIFFERS = (
    "an A100-40GB there; here the machine that this ran on, which each run's report names",
    "a step there is a batch that doubles on the way; here it is the same update in every stage",
    "step times there; here medians of runs that took turns, with intervals and the loss",
    "samples/s there; here effective tokens/s, in which padding does not count",
    "its text and lengths are not ours: what padding and packing do depends on them",
)
"""Why the two ladders cannot be subtracted from each other."""
