"""The page of a comparison: its document with charts of both sides."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summary.schema import Summary
from trainperf.comparison.compared_run import ComparedRun, read_run
from trainperf.comparison.results import Comparison
from trainperf.core.engines import mapped
from trainperf.core.formatting.html.figures import bar, keys
from trainperf.core.formatting.html.markup import Markup, page, paragraph
from trainperf.core.formatting.html.palette import COLOURS
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.units import duration, plural
from trainperf.reports.charts.losses import losses
from trainperf.reports.comparison import comparison_document, speed
from trainperf.reports.layout.document import Chart, Heading, Part, Sentence, items, section
from trainperf.reports.layout.html import as_html
from trainperf.reports.run.rows import phase_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The repeats of two sides, each read once, and their comparison."""

    comparison: Comparison
    before: Sequence[ComparedRun]
    after: Sequence[ComparedRun]


def read(sides: Sequence[Sequence[Run]], engine: Executor | None = None) -> list[list[ComparedRun]]:
    """Read the repeats of each side; where there is an *engine*, several runs at a time."""
    runs = iter(mapped(engine, read_run, [run for side in sides for run in side]))
    return [list(islice(runs, len(side))) for side in sides]


def render(pairs: Sequence[Pair]) -> str:
    """The whole page; of several comparisons one below the other."""
    title = " · ".join(dict.fromkeys(pair.comparison.after.name for pair in pairs))
    several = [as_html(_overview(pairs))] if len(pairs) > 1 else []
    documents = (as_html(pair_document(pair)) for pair in pairs)
    return page(f"{title} · trainperf compare", *several, *documents)


def _overview(pairs: Sequence[Pair]) -> list[Part]:
    rows = tuple(
        (
            each.after.name,
            each.verdict,
            each.reason if each.speedup is None else speed(each.speedup),
        )
        for each in (pair.comparison for pair in pairs)
    )
    before = pairs[0].comparison.before.name
    return [
        Heading("trainperf compare", 1),
        Sentence(text=f"{plural(len(pairs), 'run')} against {before}", kind="answer"),
        Table(head=("run", "verdict", ""), rows=rows, words=3),
    ]


def pair_document(pair: Pair) -> list[Part]:
    """A comparison with its charts, and where its runs are."""
    comparison = pair.comparison
    # Two runs may have one name.
    names = f"before: {comparison.before.name}", f"after: {comparison.after.name}"
    sides = (pair.before, pair.after)
    curves = [[run.losses for run in side] for side in sides]
    charts = {
        "phases": [_phases([side[0].summary for side in sides], names)],
        "losses": losses(curves, comparison.parity, names),
    }
    paths = (*comparison.before.paths, *comparison.after.paths)
    return [
        *comparison_document(comparison, charts),
        *section("The runs", items(paths, "soft")),
    ]


def _phases(summaries: Sequence[Summary], names: Sequence[str]) -> Chart:
    """The mean steps of both as bars to one scale."""
    every = [phase_rows(summary) for summary in summaries]
    longest_s = max(sum(row.seconds for row in rows) for rows in every)
    drawn = []
    for name, rows in zip(names, every, strict=True):
        step_s = sum(row.seconds for row in rows)
        parts = [(row.seconds, row.phase, f"{row.label}: {row.time}") for row in rows]
        caption = f"{name}, {duration(step_s)}" if rows else f"{name}: no step was recorded"
        drawn.append(paragraph(caption, "soft small") + bar(parts, name, whole=longest_s))
    named = {row.label: f"b{row.phase % COLOURS}" for rows in every for row in rows if row.seconds}
    return Chart(Markup("".join(drawn) + keys(named.items())))
