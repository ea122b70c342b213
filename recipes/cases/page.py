"""A recipe's run as one HTML file, printable, light and dark, nothing loaded."""

from collections.abc import Iterator, Sequence

from recipes.cases import picture
from recipes.cases.case import Case, Plot, RecipeRun
from recipes.cases.text import (
    UNPUBLISHED,
    facts,
    measurements,
    overview,
    plot_table,
    tally,
    timeline_table,
)
from trainperf.core.formatting.html.markup import (
    Markup,
    bullets,
    page,
    paragraph,
    section,
    table,
    tag,
    text,
)
from trainperf.core.formatting.table import Table


_KINDS = {"holds": "good", "does not hold here": "bad"}


def page_of(run: RecipeRun) -> str:
    """The whole file: verdicts first, then the recipe's own tables and plots, then each case."""
    head = tag(
        "header", tag("h1", text(run.title)), prose(run.about), paragraph(facts(run), "soft")
    )
    summary = (
        section(tally(run.cases), picture.verdicts(run.cases), _drawn(overview(run.cases)))
        if run.cases
        else Markup("")
    )
    return page(run.title, head, summary, *_tables(run), *_plots(run), *map(_case, run.cases))


def _tables(run: RecipeRun) -> Iterator[Markup]:
    for each in run.tables:
        yield section(each.title, _drawn(each), bullets(each.notes))


def _plots(run: RecipeRun) -> Iterator[Markup]:
    for plot in run.plots:
        yield section(plot.title, *_plot(plot))
    for timeline in run.timelines:
        yield section(timeline.title, picture.timeline(timeline), _drawn(timeline_table(timeline)))


def _plot(plot: Plot) -> list[Markup]:
    """The picture, and its points as a table that opens."""
    points = tag("details", tag("summary", text("figures")), _drawn(plot_table(plot)))
    return [picture.plot(plot), points]


def _case(case: Case) -> Markup:
    verdict = prose(f"{case.verdict}: {case.reason}", _KINDS.get(case.verdict, "warn"))
    parts = [prose(case.claim), verdict]
    if case.command:
        parts.append(prose(f"alone: `{case.command}`", "soft"))
    parts += _lines("trainperf, before", case.before, case.before_note)
    parts += _lines("change", case.change)
    if case.measured:
        parts += [tag("h3", text("measured here")), _drawn(measurements(case))]
    if case.plot is not None:
        parts += [tag("h3", text(case.plot.title)), *_plot(case.plot)]
    if case.published is not None:
        published = case.published
        rows = (
            ("published", published.figure),
            ("source", published.source),
            ("what differs", published.differs),
        )
        parts += [tag("h3", text("published by others")), table(("", ""), rows, words=(0, 1))]
    else:
        parts.append(paragraph(UNPUBLISHED, "soft"))
    if case.files:
        parts.append(paragraph(f"left: {', '.join(case.files)}", "soft"))
    return section(case.heading, *parts)


def prose(words: str, kind: str = "") -> Markup:
    """A paragraph in which code between backticks is set as code."""
    parts = [
        tag("code", text(part)) if at % 2 else text(part)
        for at, part in enumerate(words.split("`"))
    ]
    return tag("p", *parts, kind=kind)


def _lines(heading: str, lines: Sequence[str], note: str = "") -> list[Markup]:
    parts = [tag("h3", text(heading))] if lines or note else []
    if note:
        parts.append(prose(note))
    if lines:
        parts.append(tag("div", tag("pre", Markup("\n".join(map(text, lines)))), kind="scroll"))
    return parts


def _drawn(shown: Table) -> Markup:
    words = [place for place in range(len(shown.head)) if shown.is_words(place)]
    return table(shown.head, shown.rows, words=words)
