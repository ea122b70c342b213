"""The step times that others have published for GPT-2, next to ours and never mixed with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import fill

from recipes.gpt2.outcomes import StageOutcome
from trainperf.core.formatting.units import duration, times


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One step time of a published ladder."""

    step_ms: float
    batch: str
    """Relative to the first rung's."""
    remark: str = ""


LADDER = (
    Rung(step_ms=500, batch="1 ×"),
    Rung(step_ms=380, batch="1 ×", remark="published as 80 ms faster, but 500 − 80 is 420"),
    Rung(step_ms=250, batch="1 ×"),
    Rung(step_ms=325, batch="2 ×", remark="a slower step, but more samples per second"),
    Rung(step_ms=312, batch="2 ×"),
)
"""GPT-2 on an A100-40GB, step times as published."""

SUM = "As published: 3.2 × in samples/s, which is 2 × 500 / 312."

DIFFERS = (
    "theirs is an A100-40GB; ours is the machine named in each run's report",
    "their batch doubles along the way; our update is the same in every stage",
    "theirs are step times; ours are medians of runs in turns, with intervals and the loss",
    "theirs are samples/s; ours are effective tokens/s, which exclude padding",
    "text and document lengths differ, and the gain of packing depends on them",
)
"""Why the two ladders cannot be compared number by number."""


_LEFT = 26


def next_to_ours(outcomes: Sequence[StageOutcome], width: int) -> str:
    """Both ladders, rung by rung, and why they cannot be compared number by number."""
    ours = [
        f"{stage.stage:<12}{duration(stage.measured.step_s or 0.0):>9}"
        f"{stage.measured.effective_tokens_per_s or 0.0:>12,.0f}"
        f"{times(stage.cumulative or 1.0):>8}"
        for stage in outcomes
        if stage.status in ("baseline", "kept")
    ]
    theirs = [f"{rung.step_ms:.0f} ms, batch {rung.batch}" for rung in LADDER]
    head = f"{'published, A100-40GB':<{_LEFT}}{'ours':<12}{'step':>9}{'tokens/s':>12}{'gain':>8}"
    rows = [
        f"{left:<{_LEFT}}{right}".rstrip()
        for left, right in zip_longest(theirs, ours, fillvalue="")
    ]
    differs = fill(f"{SUM} They cannot be compared number by number: {DIFFERS[0]}.", width)
    return "\n".join([head, *rows, "", differs]) + "\n"
