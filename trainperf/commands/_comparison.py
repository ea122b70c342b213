"""Comparison of runs on disk, shown in any format: what `compare` and `prove` share."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from trainperf.analysis.run.directory import Run
from trainperf.commands.cli import UNUSABLE, CommandResult
from trainperf.comparison.clocks import decision_of, gate
from trainperf.comparison.compare import DEFAULT_METHOD, Method, compare
from trainperf.comparison.compared_run import Repeats
from trainperf.comparison.results import (
    Comparison,
    GateOutcome,
    ProofFacts,
)
from trainperf.core.choice import first_that_holds
from trainperf.core.engines import engine_of
from trainperf.core.errors import RunError
from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.html.markup import portable
from trainperf.core.formatting.units import share
from trainperf.core.formatting.wrap import WIDTH, wrapped
from trainperf.core.paths import AnyPath
from trainperf.core.window import RunWindow
from trainperf.reports.comparison import answer, comparison_document, loss_sentence
from trainperf.reports.comparison_page import Pair, read
from trainperf.reports.comparison_page import render as page
from trainperf.reports.layout.forms import as_json, as_json_line, rendered


_MACHINE_READ = frozenset({"json", "line", "html"})
"""Formats to which no line can be added: the exit code alone says that a gate failed."""


LARGE_BYTES = 64 << 20
"""Records of many ranks: fewer are read sooner than another process starts."""

REGRESSION, UNDECIDED = 1, 3
"""Exit codes of the gate, and of a change to discard or of which nothing can be told; 2 is that of
runs that cannot be compared."""

Undecided = Literal["pass", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """Options of the command line."""

    form: str
    method: Method = DEFAULT_METHOD
    most_slower: float | None = None
    """The gate: the largest relative slowdown that passes."""
    undecided: Undecided = "fail"
    """What the gate does where the slowdown is neither shown nor excluded."""
    decide: bool = False
    """Whether the exit code is that of the decision."""
    proof: ProofFacts | None = None
    """What the runs took, where they were made for the comparison."""
    window: RunWindow | None = None
    """What is compared of each run; `None` for all of it."""
    ending: str = ""
    """A sentence for people: how many pairs it took, and why it ended."""


def options_of(
    given: argparse.Namespace, noise: float | None = None, window: RunWindow | None = None
) -> ComparisonOptions:
    """The options that every comparison has, as given."""
    shares = {"noise": noise, "margin": given.margin, "loss_tolerance": given.loss_tolerance}
    return ComparisonOptions(
        form=given.format,
        method=Method(**{name: share for name, share in shares.items() if share is not None}),
        most_slower=given.fail_on_regression,
        undecided=given.undecided,
        decide=given.decide,
        window=window,
    )


def compare_sides(
    sides: Sequence[Sequence[AnyPath]], options: ComparisonOptions, engine: str | None = None
) -> CommandResult:
    """Compare every side after the first with the first, each given as its repeats.

    The *engine* is that of `engine_of`; by default all processors read the files of large runs.

    Raises:
        RunError: A path is no run directory, or a gate was set and two runs are not comparable.
    """
    runs = [[Run.open(path, options.window) for path in side] for side in sides]
    recorded = [
        sum(file.size_bytes for files in run.attempts for file in files)
        for side in runs
        for run in side
    ]
    with engine_of(engine, large=max(recorded) >= LARGE_BYTES) as opened:
        before, *changed = read(runs, opened)
    comparisons = [compared(before, after, options) for after in changed]
    if options.form == "html":
        pairs = [
            Pair(comparison=comparison, before=before, after=after)
            for comparison, after in zip(comparisons, changed, strict=True)
        ]
        text = portable(page(pairs))
    else:
        text = _shown(comparisons, options.form)
    if options.form not in _MACHINE_READ and options.ending:
        text += "\n" + "\n".join(wrapped(options.ending, WIDTH, "  ")) + "\n"
    if not options.decide and options.most_slower is None:
        return CommandResult(text=text, code=0)
    code, lines = _ended(comparisons, options)
    if options.form not in _MACHINE_READ:
        shown = map(safe, lines) if options.form == "markdown" else lines
        text += "".join(f"\n{line}\n" for line in shown)
    return CommandResult(text=text, code=code)


def _shown(comparisons: Sequence[Comparison], form: str) -> str:
    """A list for programs; for people one below the other."""
    if form in ("json", "line"):
        return (as_json if form == "json" else as_json_line)(comparisons)
    documents = map(comparison_document, comparisons)
    return "\n".join(rendered(each, None, form, sys.stdout) for each in documents)


def compared(before: Repeats, after: Repeats, options: ComparisonOptions) -> Comparison:
    """The comparison with these options, and what would decide its gate."""
    comparison = replace(compare(before, after, options.method), proof=options.proof)
    limit = options.most_slower
    if limit is not None and comparison.clocks:
        outcome = GateOutcome(limit=limit, verdict=gate(comparison, limit))
        comparison = replace(comparison, gate=outcome)
    return replace(comparison, decision=decision_of(comparison))


def _ended(comparisons: Sequence[Comparison], options: ComparisonOptions) -> tuple[int, list[str]]:
    """The exit code of a gate or of `--decide`, and lines that say why it is that.

    Raises:
        RunError: There is a gate alone, and runs that cannot be compared.
    """
    lines = [line for each in comparisons if (line := _line(each, decide=options.decide))]
    for comparison in comparisons:
        if comparison.verdict == "not comparable" and not options.decide:
            raise RunError(answer(comparison))
        if comparison.verdict == "not comparable":
            return UNUSABLE, lines
    decisions = {each.decision for each in comparisons}
    if "discard" in decisions:
        return REGRESSION, lines
    return (UNDECIDED if "cannot tell" in decisions and options.undecided == "fail" else 0), lines


def _line(comparison: Comparison, *, decide: bool) -> str:
    """The decision, or why the gate does not pass; empty where it does."""
    text, outcome = answer(comparison), comparison.gate
    if decide:
        unseen = comparison.decision == "keep" and comparison.parity.verdict == "unknown"
        loss = f" Its {loss_sentence(comparison.parity)}." if unseen else ""
        return f"{comparison.decision}: {text}{loss}"
    if outcome is None or outcome.verdict == "pass":
        return ""
    limit = share(outcome.limit)
    open_ = f"undecided: {text} A slowdown of more than {limit} is neither shown nor excluded."
    return first_that_holds(
        (open_, outcome.verdict == "undecided"),
        (f"regression: {text}", comparison.verdict == "loss differs"),
        (f"regression: {text} The limit is {limit}.", True),
    )
