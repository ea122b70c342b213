"""A document as HTML: the same parts on the page of a run, in a notebook and in the tab."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from trainperf.core.formatting.html.markup import Markup, bullets, paragraph, table, tag, text
from trainperf.core.formatting.table import Table
from trainperf.reports.layout.document import Chart, Heading, Part, Pictured, Sentence
from trainperf.reports.layout.finding_view import NEXT, WHERE, WRITE, FindingView


_CODE = (NEXT, WHERE, WRITE)
"""Labels of lines that are code, or a command."""

_ON_A_LINE = 2
"""Notes of a table that stand on one line."""


def as_html(parts: Sequence[Part]) -> Markup:
    """The document: what is before the first section as a header, then section after section."""
    sections: list[list[Part]] = [[]]
    for part in parts:
        if isinstance(part, Heading) and part.level == 2:
            sections.append([])
        sections[-1].append(part)
    first, *others = sections
    drawn = [tag("section", *_inside(each)) for each in others]
    return Markup("".join([tag("header", *_top(first)) if first else "", *drawn]))


def _top(parts: Sequence[Part]) -> Iterable[Markup]:
    """The answer is the heading of all."""
    for part in parts:
        if isinstance(part, Sentence) and part.kind == "answer":
            place = parts.index(part)
            heading = tag("h1", text(part.text))
            return [*_inside(parts[:place]), heading, *_inside(parts[place + 1 :])]
    return _inside(parts)


def _inside(parts: Sequence[Part]) -> Iterable[Markup]:
    """Neighbours of one kind become one list, or one grid."""
    for kind, group in groupby(parts, key=_joined):
        members = list(group)
        sentences = [part for part in members if isinstance(part, Sentence)]
        if kind == "grid":
            yield tag("div", *map(_part, members), kind=kind)
        elif kind == "item":
            yield bullets(part.text for part in sentences)
        elif kind == "label":
            yield _labelled((part.label, part.text) for part in sentences)
        else:
            yield from map(_part, members)


def _joined(part: Part) -> str:
    if isinstance(part, Sentence):
        return "label" if part.label else part.kind
    return "grid" if isinstance(part, Chart) and part.small else ""


def _labelled(rows: Iterable[tuple[str, str]]) -> Markup:
    """Lines with a label; those that are code are set as code."""
    lines = [
        tag(
            "div",
            tag("dt", text(label)),
            tag("dd", tag("code", text(words)) if label in _CODE else text(words)),
        )
        for label, words in rows
    ]
    return tag("dl", *lines, kind="labelled") if lines else Markup("")


def _part(part: Part) -> Markup:
    if isinstance(part, Chart):
        return part.picture
    if isinstance(part, Heading):
        small = part.level == 1
        return (
            paragraph(part.text, "soft small") if small else tag(f"h{part.level}", text(part.text))
        )
    if isinstance(part, Sentence):
        return _sentence(part)
    return _finding(part) if isinstance(part, FindingView) else _table(part)


def _sentence(part: Sentence) -> Markup:
    if part.kind == "answer":
        return tag("p", tag("b", text(part.text)))
    if part.kind == "facts":
        return tag("p", *(tag("span", text(v)) for v in part.text.split(" · ")), kind=part.kind)
    return paragraph(part.text, part.kind)


def _finding(finding: FindingView) -> Markup:
    """Title, gain, evidence, labelled rows."""
    gain = Markup(f' <span class="gain">{text(finding.gain)}</span>') if finding.gain else ""
    title = tag("p", tag("b", text(finding.title)), Markup(gain))
    evidence = [paragraph("; ".join(finding.evidence), "soft")] if finding.evidence else []
    rows = _labelled((row.label, row.text) for row in finding.rows)
    return tag("div", title, *evidence, rows, kind=f"finding {finding.severity}")


def _table(part: Table | Pictured) -> Markup:
    """With its title, the column of pictures where it has one, and its notes."""
    grid = part.table if isinstance(part, Pictured) else part
    head: list[str | Markup] = [name or "\u00a0" for name in grid.head]
    # A browser would drop the spaces that show what is inside what.
    rows: list[list[str | Markup]] = [
        [f"\u2003{cell.lstrip(' ')}" if cell.startswith(" ") else cell for cell in row]
        for row in grid.rows
    ]
    is_words = [grid.is_words(place) for place in range(len(grid.head))]
    if isinstance(part, Pictured):
        columns = slice(part.place, part.place + part.instead)
        head[columns] = [part.head or "\u00a0"]
        is_words[columns] = [True]
        for row, picture in zip(rows, part.cells, strict=True):
            row[columns] = [picture]
    words = [place for place, left in enumerate(is_words) if left]
    title = tag("h3", text(grid.title)) if grid.title else ""
    # A row of empty heads would be a gap.
    shown = table(head if any(grid.head) else (), rows, words=words)
    notes = paragraph(" · ".join(grid.notes), "soft small") if grid.notes else ""
    if len(grid.notes) > _ON_A_LINE:
        notes = tag("div", bullets(grid.notes), kind="soft small")
    return Markup(f"{title}{shown}{notes}")
