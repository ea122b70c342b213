"""A recipe's run as a page of the documentation, with its pictures as files of their own.

A page has no text of its own but headings: all the rest is what the run left.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from recipes.cases import picture
from recipes.cases.case import Case, RecipeRun
from recipes.cases.text import (
    UNPUBLISHED,
    facts,
    measurements,
    overview,
    plot_table,
    tally,
    timeline_table,
)
from trainperf.core.formatting.escape import markdown
from trainperf.core.formatting.table import Table, markdown_table


_FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)?")
_NO_TEXT = re.compile(r"<!--.*?-->|\]\([^)]*\)")
"""Comments and names of files."""
_TIMED = re.compile(r"  [a-z ]+\d* +([\d.]+ (s|ms|µs)|not applicable)\b")
"""A phase and what it takes."""


def page_of(run: RecipeRun, source: str) -> str:
    """The page.

    Args:
        run: As it was saved.
        source: Where it was saved, for the line that tells readers not to edit the page.
    """
    lines = [
        f"# {markdown(run.title)}",
        "",
        f"<!-- python -m scripts.render_recipes, from {source}; edit neither -->",
        "",
        prose(run.about),
        "",
        markdown(facts(run)),
        "",
        *_overview(run),
        *_own(run),
    ]
    for case in run.cases:
        lines += _case(run, case)
    return "\n".join(lines).rstrip() + "\n"


def pictures(run: RecipeRun) -> Mapping[str, str]:
    """SVG files by name, those that the page shows."""
    drawn = {f"{run.recipe}.svg": str(picture.verdicts(run.cases))}
    drawn |= {_own_plot(run, c): str(picture.plot(c.plot)) for c in run.cases if c.plot}
    drawn |= {_plot(run, at): str(picture.plot(plot)) for at, plot in enumerate(run.plots)}
    drawn |= {_lane(run, at): str(picture.timeline(each)) for at, each in enumerate(run.timelines)}
    return {name: f"{svg}\n" for name, svg in drawn.items() if svg}


def figures(text: str) -> set[str]:
    """The numbers in a text, as they are written."""
    return set(_FIGURE.findall(text))


def unprinted(run: RecipeRun, page: str) -> set[str]:
    """Figures of a *page* that its run did not print."""
    return figures(_NO_TEXT.sub("", page)) - figures("\n".join(run.printed))


def prose(words: str) -> str:
    """A sentence as Markdown, in which only code between backticks is set apart."""
    parts = words.split("`")
    if len(parts) % 2 == 0:
        return markdown(words)
    return "`".join(part if at % 2 else markdown(part) for at, part in enumerate(parts))


def _overview(run: RecipeRun) -> Iterator[str]:
    if not run.cases:
        return
    yield from (f"**{tally(run.cases)}**", "")
    if picture.verdicts(run.cases):
        yield from (f"![Verdicts with their intervals]({run.recipe}.svg)", "")
    yield from _table(overview(run.cases))


def _own(run: RecipeRun) -> Iterator[str]:
    """Tables, plots and timelines of the recipe itself."""
    for each in run.tables:
        yield from (f"## {markdown(each.title)}", "", *_table(each))
    for at, plot in enumerate(run.plots):
        yield from (
            f"## {markdown(plot.title)}",
            "",
            f"![{markdown(plot.title)}]({_plot(run, at)})",
        )
        yield from ("", *_table(plot_table(plot)))
    for at, lanes in enumerate(run.timelines):
        yield from (
            f"## {markdown(lanes.title)}",
            "",
            f"![{markdown(lanes.title)}]({_lane(run, at)})",
        )
        yield from ("", *_table(timeline_table(lanes)))


def _case(run: RecipeRun, case: Case) -> list[str]:
    lines = [f"## {markdown(case.heading)}", "", f"**{prose(case.claim)}**", ""]
    lines += [f"Alone: `{case.command}`", ""] if case.command else []
    lines += _fenced("trainperf, before:", _times(case.before), case.before_note)
    lines += _fenced("Change:", case.change)
    if case.measured:
        lines += ["Measured here:", "", *_table(measurements(case))]
    if case.plot is not None:
        lines += [f"![{markdown(case.plot.title)}]({_own_plot(run, case)})", ""]
        lines += _table(plot_table(case.plot))
    if case.published is not None:
        published = case.published
        lines += [f"Published: {prose(published.figure)} (<{published.source}>)  "]
        lines += [f"What differs: {prose(published.differs)}", ""]
    else:
        lines += [f"Published: {UNPUBLISHED}.", ""]
    return [*lines, f"Verdict: **{case.verdict}**; {prose(case.reason)}.", ""]


def _times(report: Sequence[str]) -> tuple[str, ...]:
    """A recorded report without its first sentences, which are those of the version that ran."""
    shown: list[str] = []
    in_sentences = False
    for line in report:
        if line.startswith("  Step time "):
            in_sentences = True
            shown.append("  …")
        elif _TIMED.match(line):
            in_sentences = False
        if not in_sentences:
            shown.append(line)
    return tuple(shown)


def _fenced(heading: str, lines: Sequence[str], note: str = "") -> list[str]:
    # Not as Python: a change is no program.
    fenced = ["```text", *lines, "```", ""] if lines else []
    return [f"{heading} {prose(note)}".rstrip(), "", *fenced] if lines or note else []


def _table(table: Table) -> list[str]:
    notes = [f"{prose(note)}  " for note in table.notes]
    return [markdown_table(table), "", *notes, *[""][: len(notes)]]


def _plot(run: RecipeRun, at: int) -> str:
    return f"{run.recipe}-{at + 1}.svg"


def _own_plot(run: RecipeRun, case: Case) -> str:
    return f"{run.recipe}-{case.name}.svg"


def _lane(run: RecipeRun, at: int) -> str:
    return f"{run.recipe}-timeline-{at + 1}.svg"
