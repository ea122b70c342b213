"""A document as HTML: the same parts on the page of a run, in a notebook and in the tab."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from trainperf.core.formatting.html.markup import Markup, bullets, page, paragraph, table, tag, text
from trainperf.core.formatting.table import Table
from trainperf.reports.layout.document import Chart, Heading, Part, Pictured, Sentence
from trainperf.reports.layout.finding_view import NEXT, WHERE, WRITE, FindingView


_CODE = (NEXT, WHERE, WRITE)
"""Labels of lines that are code, or a command."""

_ON_A_LINE = 2
"""Notes of a table that stand on one line."""


def as_page(title: str, parts: Sequence[Part]) -> str:
    """A file of its own."""
    return page(title, as_html(parts))


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
    place = next((n for n, part in enumerate(parts) if _is_answer(part)), None)
    if place is None:
        return _inside(parts)
    answer = parts[place]
    heading = tag("h1", text(answer.text)) if isinstance(answer, Sentence) else Markup("")
    return [*_inside(parts[:place]), heading, *_inside(parts[place + 1 :])]


def _is_answer(part: Part) -> bool:
    return isinstance(part, Sentence) and part.kind == "answer"


def _inside(parts: Sequence[Part]) -> Iterable[Markup]:
    """Neighbours of one kind become one list, or one grid."""
    for join, group in groupby(parts, key=_joined):
        members = list(group)
        yield Markup("".join(map(_part, members))) if join is None else join(members)


def _joined(part: Part) -> Callable[[Sequence[Part]], Markup] | None:
    if isinstance(part, Sentence) and part.label:
        return _labelled
    if isinstance(part, Sentence) and part.kind == "item":
        return _items
    return _grid if isinstance(part, Chart) and part.small else None


def _items(parts: Sequence[Part]) -> Markup:
    return bullets(part.text for part in parts if isinstance(part, Sentence))


def _grid(parts: Sequence[Part]) -> Markup:
    return tag("div", *(part.picture for part in parts if isinstance(part, Chart)), kind="grid")


def _labelled(parts: Sequence[Part]) -> Markup:
    return label_list((part.label, part.text) for part in parts if isinstance(part, Sentence))


def label_list(rows: Iterable[tuple[str, str]]) -> Markup:
    """Labelled lines; those that are code are set as code."""
    lines = []
    for label, words in rows:
        shown = tag("code", text(words)) if label in _CODE else text(words)
        lines.append(tag("div", tag("dt", text(label)), tag("dd", shown)))
    return tag("dl", *lines, kind="labelled") if lines else Markup("")


def _part(part: Part) -> Markup:
    if isinstance(part, Chart):
        return part.picture
    if isinstance(part, Heading):
        return _heading(part)
    if isinstance(part, Sentence):
        return _sentence(part)
    return _finding(part) if isinstance(part, FindingView) else _table(part)


def _heading(part: Heading) -> Markup:
    if part.level == 1:
        return paragraph(part.text, "soft small")
    return tag(f"h{part.level}", text(part.text))


def _sentence(part: Sentence) -> Markup:
    if _is_answer(part):
        return tag("p", tag("b", text(part.text)))
    if part.kind == "facts":
        values = part.text.split(" · ")
        return tag("p", *(tag("span", text(value)) for value in values), kind=part.kind)
    return paragraph(part.text, part.kind)


def _finding(finding: FindingView) -> Markup:
    """Title, gain, evidence, labelled rows."""
    title = [tag("b", text(finding.title))]
    if finding.gain:
        title.append(Markup(f' <span class="gain">{text(finding.gain)}</span>'))
    lines = [tag("p", *title)]
    if finding.evidence:
        lines.append(paragraph("; ".join(finding.evidence), "soft"))
    rows = label_list((row.label, row.text) for row in finding.rows)
    return tag("div", *lines, rows, kind=f"finding {finding.severity}")


def _table(part: Table | Pictured) -> Markup:
    """With its title, the column of pictures where it has one, and its notes."""
    grid = part.table if isinstance(part, Pictured) else part
    head: list[str | Markup] = [name or "\u00a0" for name in grid.head]
    rows: list[list[str | Markup]] = [[_indented(cell) for cell in row] for row in grid.rows]
    is_words = [grid.is_words(place) for place in range(len(grid.head))]
    if isinstance(part, Pictured):
        head.insert(part.place, part.head or "\u00a0")
        is_words.insert(part.place, True)
        for row, picture in zip(rows, part.cells, strict=True):
            row.insert(part.place, picture)
    words = [place for place, left in enumerate(is_words) if left]
    title = tag("h3", text(grid.title)) if grid.title else Markup("")
    # A row of empty heads would be a gap.
    shown = table(head if any(grid.head) else (), rows, words=words)
    return Markup(title + shown + _notes(grid.notes))


def _notes(notes: Sequence[str]) -> Markup:
    """One or two on a line; more of them each on its own."""
    if len(notes) > _ON_A_LINE:
        return tag("div", bullets(notes), kind="soft small")
    return paragraph(" · ".join(notes), "soft small") if notes else Markup("")


def _indented(cell: str) -> str:
    """A browser would drop the spaces that show what is inside what."""
    return f"\u2003{cell.lstrip(' ')}" if cell.startswith(" ") else cell
