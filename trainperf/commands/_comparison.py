"""What do two runs say beside each other, and does the gate hold?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainperf.analysis.summary.loss_parity import TOLERANCE
from trainperf.commands.cli import Said
from trainperf.comparison.compare import Judge
from trainperf.comparison.results import Comparison
from trainperf.core.errors import RunError
from trainperf.core.formatting.html.markup import portable
from trainperf.core.stats.bootstrap import ASSUMED_NOISE
from trainperf.reports.comparison import markdown as compare_markdown
from trainperf.reports.comparison import text as compare_text
from trainperf.reports.comparison.rows import answer
from trainperf.reports.html.compare import Pair, read
from trainperf.reports.html.compare import render as page
from trainperf.reports.layout.json import comparison_json


_RENDER = {
    "text": compare_text.render,
    "markdown": compare_markdown.render,
    "json": comparison_json,
}
_WHOLE = frozenset({"json", "html"})
"""Forms to which nothing can be added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options; `None` is the default."""

    form: str
    tolerance: float | None = None
    noise: float | None = None
    gate: float | None = None
    """A run may be so much slower."""


def compared(sides: Sequence[Sequence[Path]], asked: Asked) -> Said:
    """Compare every side after the first with the first, each given as its repeats.

    Raises:
        RunError: One of them is no run directory, or under a gate two cannot be compared.
    """
    judge = Judge(
        tolerance=TOLERANCE if asked.tolerance is None else asked.tolerance,
        noise=ASSUMED_NOISE if asked.noise is None else asked.noise,
    )
    before, *others = (read(*side) for side in sides)
    pairs = [
        Pair(comparison=judge.compare(before.members, after.members), before=before, after=after)
        for after in others
    ]
    found = [pair.comparison for pair in pairs]
    text = portable(page(pairs)) if asked.form == "html" else _RENDER[asked.form](found)
    failed = [] if asked.gate is None else _regressions(found, asked.gate)
    # What a program or a browser reads stays whole: there the exit code alone says it.
    said = [f"\nregression: {why}\n" for why in failed if asked.form not in _WHOLE]
    return Said(text="".join((text, *said)), code=1 if failed else 0)


def _regressions(found: Sequence[Comparison], limit: float) -> list[str]:
    return [why for one in found if (why := _regression(one, limit))]


def _regression(comparison: Comparison, limit: float) -> str:
    """Why the gate fails, in one line; empty if it does not.

    The whole interval must be beyond the limit: noise does not fail a build.
    """
    speedup = comparison.speedup
    if speedup is None:
        raise RunError(answer(comparison))
    if comparison.verdict == "loss differs":
        return answer(comparison)
    slower = 1 / speedup.high - 1
    if slower <= limit:
        return ""
    return f"{answer(comparison)} More than {limit:.3g} slower for sure."
