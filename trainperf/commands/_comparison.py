"""Comparison of runs on disk, shown in any format: what `compare` and `prove` share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainperf.analysis.summary.loss_parity import TOLERANCE
from trainperf.commands.cli import CommandResult
from trainperf.comparison.compare import compare
from trainperf.comparison.results import Comparison
from trainperf.core.errors import RunError
from trainperf.core.formatting.html.markup import portable
from trainperf.core.formatting.units import share
from trainperf.core.stats.bootstrap import ASSUMED_NOISE
from trainperf.core.stats.sequential import Looks
from trainperf.reports.comparison import answer, comparison_markdown, comparison_text
from trainperf.reports.html.compare import Pair, read
from trainperf.reports.html.compare import render as page
from trainperf.reports.layout.json import comparison_json


_RENDER = {
    "text": comparison_text,
    "markdown": comparison_markdown,
    "json": comparison_json,
}
_MACHINE_READ = frozenset({"json", "html"})
"""Formats to which no line can be added: the exit code alone says that a gate failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """Options of the command line; `None` is the default."""

    form: str
    loss_tolerance: float | None = None
    noise: float | None = None
    most_slower: float | None = None
    """The gate: the relative slowdown from which it fails."""
    looks: Looks | None = None
    """The plan, where pairs in turns were compared after every pair."""
    ending: str = ""
    """A sentence for people: how many pairs it took, and why it ended."""


def compare_sides(sides: Sequence[Sequence[Path]], options: ComparisonOptions) -> CommandResult:
    """Compare every side after the first with the first, each given as its repeats.

    Raises:
        RunError: A path is no run directory, or a gate was set and two runs are not comparable.
    """
    tolerance = TOLERANCE if options.loss_tolerance is None else options.loss_tolerance
    noise = ASSUMED_NOISE if options.noise is None else options.noise
    before, *changed = [read(*side) for side in sides]
    pairs = [
        Pair(
            comparison=compare(
                before.runs,
                after.runs,
                loss_tolerance=tolerance,
                noise=noise,
                looks=options.looks,
            ),
            before=before,
            after=after,
        )
        for after in changed
    ]
    comparisons = [pair.comparison for pair in pairs]
    text = portable(page(pairs)) if options.form == "html" else _RENDER[options.form](comparisons)
    limit = options.most_slower
    failures = [] if limit is None else _regressions(comparisons, limit)
    if options.form not in _MACHINE_READ:
        text += f"\n{options.ending}\n" if options.ending else ""
        text += "".join(f"\nregression: {failure}\n" for failure in failures)
    return CommandResult(text=text, code=1 if failures else 0)


def _regressions(comparisons: Sequence[Comparison], limit: float) -> list[str]:
    """Why the gate fails, one line for each comparison in which it does."""
    reasons = [_regression(comparison, limit) for comparison in comparisons]
    return [reason for reason in reasons if reason]


def _regression(comparison: Comparison, limit: float) -> str:
    """Why the gate fails, in one line; empty if it does not.

    The whole interval must be beyond the limit, so that noise does not fail a build.
    """
    speedup = comparison.speedup
    if speedup is None:
        raise RunError(answer(comparison))
    if comparison.verdict == "loss differs":
        return answer(comparison)
    slower = 1 / speedup.high - 1
    if slower <= limit:
        return ""
    return f"{answer(comparison)} The whole 95 % interval is beyond the limit of {share(limit)}."
