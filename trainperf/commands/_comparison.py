"""Comparison of runs on disk, shown in any format: what `compare` and `prove` share."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from trainperf.analysis.summary.loss_parity import TOLERANCE
from trainperf.commands.cli import CommandResult
from trainperf.comparison.clocks import Gate, gate, remedy
from trainperf.comparison.compare import Method, compare
from trainperf.comparison.compared_run import Repeats
from trainperf.comparison.results import Comparison, FirstSteps
from trainperf.core.errors import RunError
from trainperf.core.formatting.html.markup import portable
from trainperf.core.formatting.units import share
from trainperf.core.formatting.wrap import WIDTH, wrapped
from trainperf.core.stats.bootstrap import ASSUMED_NOISE
from trainperf.core.stats.sequential import Looks
from trainperf.core.stats.verdict import MARGIN
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


REGRESSION, UNDECIDED = 1, 3
"""Exit codes of the gate; 2 is that of runs that cannot be compared."""

Undecided = Literal["pass", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """Options of the command line; `None` is the default."""

    form: str
    loss_tolerance: float | None = None
    noise: float | None = None
    margin: float | None = None
    most_slower: float | None = None
    """The gate: the largest relative slowdown that passes."""
    undecided: Undecided = "fail"
    """What the gate does where the slowdown is neither shown nor excluded."""
    looks: Looks | None = None
    """The plan, where pairs in turns were compared after every pair."""
    first_steps: FirstSteps | None = None
    """What trainings had which were ended before whole periods."""
    ending: str = ""
    """A sentence for people: how many pairs it took, and why it ended."""


def options_of(given: argparse.Namespace, noise: float | None = None) -> ComparisonOptions:
    """The options that every comparison has, as given."""
    return ComparisonOptions(
        form=given.format,
        loss_tolerance=given.loss_tolerance,
        noise=noise,
        margin=given.margin,
        most_slower=given.fail_on_regression,
        undecided=given.undecided,
    )


def compare_sides(sides: Sequence[Sequence[Path]], options: ComparisonOptions) -> CommandResult:
    """Compare every side after the first with the first, each given as its repeats.

    Raises:
        RunError: A path is no run directory, or a gate was set and two runs are not comparable.
    """
    before, *changed = [read(*side) for side in sides]
    comparisons = [compared(before.runs, after.runs, options) for after in changed]
    if options.form == "html":
        pairs = [
            Pair(comparison=comparison, before=before, after=after)
            for comparison, after in zip(comparisons, changed, strict=True)
        ]
        text = portable(page(pairs))
    else:
        text = _RENDER[options.form](comparisons)
    if options.form not in _MACHINE_READ and options.ending:
        text += "\n" + "\n".join(wrapped(options.ending, WIDTH, "  ")) + "\n"
    if options.most_slower is None:
        return CommandResult(text=text, code=0)
    code, lines = _judged(comparisons, options.most_slower, options.undecided)
    if options.form not in _MACHINE_READ:
        text += "".join(f"\n{line}\n" for line in lines)
    return CommandResult(text=text, code=code)


def compared(before: Repeats, after: Repeats, options: ComparisonOptions) -> Comparison:
    """The comparison with these options, and what would decide its gate."""
    method = Method(
        noise=ASSUMED_NOISE if options.noise is None else options.noise,
        margin=MARGIN if options.margin is None else options.margin,
        looks=options.looks,
        first_steps=options.first_steps,
        loss_tolerance=TOLERANCE if options.loss_tolerance is None else options.loss_tolerance,
    )
    comparison = compare(before, after, method)
    limit = options.most_slower
    if limit is None or options.looks is not None or not comparison.clocks:
        return comparison
    if gate(comparison, limit) != "undecided":
        return comparison
    return replace(comparison, remedy=remedy(comparison, (before, after), limit))


def _judged(
    comparisons: Sequence[Comparison], limit: float, undecided: Undecided
) -> tuple[int, list[str]]:
    """The exit code of the gate, and a line for each comparison that does not pass."""
    for comparison in comparisons:
        if comparison.verdict == "not comparable":
            raise RunError(answer(comparison))
    outcomes = [gate(comparison, limit) for comparison in comparisons]
    lines = [
        _line(outcome, comparison, limit)
        for outcome, comparison in zip(outcomes, comparisons, strict=True)
        if outcome != "pass"
    ]
    if "regression" in outcomes:
        return REGRESSION, lines
    return (UNDECIDED if "undecided" in outcomes and undecided == "fail" else 0), lines


def _line(outcome: Gate, comparison: Comparison, limit: float) -> str:
    """Why it does not pass."""
    if outcome == "undecided":
        return (
            f"undecided: {answer(comparison)} A slowdown of more than {share(limit)} is neither "
            "shown nor excluded."
        )
    if comparison.verdict == "loss differs":
        return f"regression: {answer(comparison)}"
    return f"regression: {answer(comparison)} The limit is {share(limit)}."
