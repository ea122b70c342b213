"""What does `report.html` of a run hold?  The answer first, then every figure behind it."""

from collections.abc import Sequence
from pathlib import Path

from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.html.markup import Markup, page, paragraph, section, table, tag, text
from trainperf.core.formatting.table import Table
from trainperf.core.run_directory import REPORT, write_atomically
from trainperf.reports.html.answer import breakdown, findings, first, fit
from trainperf.reports.html.captures import captures
from trainperf.reports.html.components import heading, missing, not_measured, shown
from trainperf.reports.html.curves import absent, drawable, drawn
from trainperf.reports.html.memory import memory
from trainperf.reports.html.page_data import Seen
from trainperf.reports.html.phases_over_time import over_time
from trainperf.reports.html.ranks import ranks
from trainperf.reports.html.roof import roof, why_not
from trainperf.reports.html.step_times import histogram
from trainperf.reports.run.rows import left_out
from trainperf.reports.run.tab_words import Words, words_of
from trainperf.reports.run.tables import light_line, of_compilation, of_loader, of_step


_OF_RANKS = frozenset({"tail", "skew"})
_OF_MEMORY = frozenset({"memory"})


def render(seen: Seen) -> str:
    """The whole page.  Every name that came from a user is escaped."""
    summary = seen.evidence.summary
    words = words_of(summary)
    return page(
        f"{summary.run.name} · trainperf",
        first(summary),
        section("Where a step goes", breakdown(summary), _tables(of_loader(summary))),
        section("What to change", findings(summary)),
        section("How long the steps took", _steps(seen)),
        section("Other measurements over the fit", _curves(seen, _rest(seen))),
        section("Ranks", ranks(summary, words), _of_ranks(seen)),
        section("Memory", memory(summary), _curves(seen, _OF_MEMORY)),
        section("Speed of light", _light(seen)),
        section("torch.compile", _tables(of_compilation(summary))),
        section("Captures", captures(summary, seen.evidence.captures)),
        section("The whole fit", fit(summary)),
        section("All readings", _readings(words)),
        section("The run", _settings(summary)),
        _foot(summary),
    )


def save(seen: Seen, run: Path) -> None:
    """Write the page into the directory *run*, whole or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    write_atomically(run / REPORT, render(seen).encode("utf-8"))


def _steps(seen: Seen) -> Markup:
    steps = seen.series.steps
    if steps is None:
        return not_measured("no step was recorded")
    why = left_out(seen.evidence.summary)
    return Markup(
        heading("Phases over the fit")
        + over_time(steps)
        + heading("Distribution")
        + histogram(seen.walls)
        + paragraph(f"{why}: the rows above the bars." if why else "", "soft small")
    )


def _rest(seen: Seen) -> frozenset[str]:
    keys = frozenset(chart.key for chart in seen.series.charts)
    return keys - _OF_RANKS - _OF_MEMORY


def _curves(seen: Seen, keys: frozenset[str]) -> Markup:
    """The small pictures, and beneath them what was not measured."""
    steps = seen.series.steps
    charts = [chart for chart in seen.series.charts if chart.key in keys]
    if steps is None:
        return Markup("")
    pictures = [drawn(chart, steps.begins) for chart in drawable(charts)]
    grid = tag("div", *pictures, kind="grid") if pictures else Markup("")
    return Markup(grid + missing(absent(charts)))


def _of_ranks(seen: Seen) -> Markup:
    alone = seen.evidence.summary.run.world_size == 1
    return Markup("") if alone else _curves(seen, _OF_RANKS)


def _tables(found: Sequence[Table]) -> Markup:
    return Markup("".join(map(shown, found)))


def _light(seen: Seen) -> Markup:
    """The roofline, and what the step is spent on."""
    summary, light = seen.evidence.summary, seen.evidence.light
    grids = _tables(of_step(summary))
    if light is None:
        return Markup(not_measured(f"needs an audit of one step: {summary.run.loop.audit}") + grids)
    line = light_line(summary.light) if summary.light is not None else ""
    picture = roof(seen.evidence, light) or not_measured(why_not(seen.evidence, light))
    return Markup(paragraph(line) + heading("Roofline") + picture + grids)


def _readings(words: Words) -> Markup:
    rows = [
        (tag("code", text(one.name)), one.said, one.interval, f"{one.steps:,}")
        for one in words.readings
        if one.said
    ]
    absent_ones = [(one.name, one.reason) for one in words.readings if not one.said]
    return Markup(
        table(("reading", "value", "95 % interval", "steps"), rows) + missing(absent_ones)
    )


def _settings(summary: Summary) -> Markup:
    run = summary.run
    groups = (("Settings", run.config), ("Hardware", run.hardware), ("Software", run.software))
    grids = [
        tag(
            "div",
            heading(name),
            table(
                ("\u00a0", "\u00a0"),
                [
                    (fact, "not known" if value is None else str(value))
                    for fact, value in known.items()
                ],
                words=(0, 1),
            ),
        )
        for name, known in groups
        if known
    ]
    return tag("div", *grids, kind="grid") if grids else Markup("")


def _foot(summary: Summary) -> Markup:
    return tag("footer", text(f"trainperf · {summary.run.path}"))
