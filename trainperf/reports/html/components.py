"""Components that the pages share: numbers, labelled lines, tables, and what is missing."""

from collections.abc import Iterable, Sequence

from trainperf.core.formatting.html.markup import Markup, bullets, paragraph, table, tag, text
from trainperf.core.formatting.table import Table
from trainperf.reports.layout.finding_view import NEXT, WHERE, FindingRow, FindingView


SIDES = (3, 0)
"""Colours of lines before and after a change."""

_ON_A_LINE = 2


def facts(values: Iterable[tuple[str, str]]) -> Markup:
    """Single numbers, each under its name."""
    pairs = [tag("div", tag("dt", text(name)), tag("dd", text(value))) for name, value in values]
    return tag("dl", *pairs, kind="facts") if pairs else Markup("")


def labelled(rows: Sequence[FindingRow]) -> Markup:
    """The labelled lines of a finding; those that are code are set as code."""
    lines = []
    for row in rows:
        words = text(row.text)
        shown_text = tag("code", words) if row.label in (NEXT, WHERE) else words
        lines.append(tag("div", tag("dt", text(row.label)), tag("dd", shown_text)))
    return tag("dl", *lines, kind="labelled") if lines else Markup("")


def finding_card(finding: FindingView) -> Markup:
    """A finding: title, gain, evidence, labelled rows."""
    title = [tag("b", text(finding.title))]
    if finding.gain:
        title.append(Markup(f' <span class="gain">{text(finding.gain)}</span>'))
    lines = [tag("p", *title)]
    if finding.evidence:
        lines.append(paragraph("; ".join(finding.evidence), "soft"))
    return tag("div", *lines, labelled(finding.rows), kind=f"finding {finding.severity}")


def heading(words: str) -> Markup:
    """A heading inside a section."""
    return tag("h3", text(words))


def shown(grid: Table) -> Markup:
    """A table of any report with its title and its notes."""
    head = [name or "\u00a0" for name in grid.head]
    rows = [[_indented(cell) for cell in row] for row in grid.rows]
    words = [place for place in range(len(grid.head)) if grid.is_words(place)]
    cells = table(head, rows, words=words)
    return Markup(heading(grid.title) + cells + _notes(grid.notes))


def missing(reasons: Sequence[tuple[str, str]]) -> Markup:
    """What there is nothing to show of, each with why; those of one reason together."""
    names: dict[str, list[str]] = {}
    for name, why in reasons:
        names.setdefault(_reason(why), []).append(name)
    lines = [
        tag("li", tag("b", text(", ".join(several))), text(f": {why}"))
        for why, several in names.items()
    ]
    return tag("ul", *lines, kind="absent") if lines else Markup("")


def not_measured(why: str) -> Markup:
    """In the place of a figure."""
    return paragraph(_reason(why), "absent")


def meter(share: float, kind: str) -> Markup:
    """A bar in a cell of a table, a share of the cell's width."""
    wide = min(1.0, max(0.0, share)) * 100
    return Markup(f'<span class="meter {kind}" style="width:{wide:.2f}%"></span>')


def _notes(notes: Sequence[str]) -> Markup:
    """One or two on a line; more of them each on its own."""
    if len(notes) > _ON_A_LINE:
        return tag("div", bullets(notes), kind="soft small")
    return paragraph(" · ".join(notes), "soft small") if notes else Markup("")


def _indented(cell: str) -> str:
    """A browser would drop the spaces that show what is inside what."""
    return f"\u2003{cell.lstrip(' ')}" if cell.startswith(" ") else cell


def _reason(why: str) -> str:
    """Says that it is missing where the reason does not."""
    return why if why.startswith("not ") else f"not measured: {why}"
