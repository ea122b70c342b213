"""A document as lines for a terminal, none wider than it is; styles are Rich's."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from rich.cells import cell_len
from rich.text import Text

from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.table import Table, text_table
from trainperf.core.formatting.wrap import PLUS, WIDTH, filled, words_of, wrapped
from trainperf.reports.layout.document import Chart, Heading, Part, Pictured, Sentence
from trainperf.reports.layout.finding_view import CONFIRM, FindingView


_STYLES = {
    "answer": "bold",
    "first": "bold",
    "soft": "dim",
    "warn": "yellow",
    "good": "green",
    "bad": "red",
}
_TITLE = "bold cyan"
_LABEL = 6
"""Columns of a label at least."""

_FINDING_LABEL = len(CONFIRM) + 2
_INDENT = "  "


def as_text(parts: Sequence[Part]) -> str:
    """The document as plain text, `WIDTH` columns wide."""
    return "".join(line.plain.rstrip() + "\n" for line in text_lines(parts))


def text_lines(parts: Sequence[Part], width: int = WIDTH) -> list[Text]:
    """The document line by line; charts are left out."""
    out: list[Text] = []
    indent, places, before = _INDENT, count(1), None
    labels = (len(part.label) + 1 for part in parts if isinstance(part, Sentence))
    room = max(_LABEL, *labels, 0)
    for part in parts:
        if isinstance(part, Chart):
            continue
        if out and _is_apart(part, before):
            out.append(Text())
        if isinstance(part, Heading):
            lead = "" if part.level == 1 else _INDENT
            indent = _INDENT if part.level == 1 else 2 * _INDENT
            out += _indented(lead, flow(part.text.split(" · "), width, " · ", _TITLE))
        elif isinstance(part, Sentence):
            out += sentence_lines(part, width, indent, room)
        elif isinstance(part, FindingView):
            out += _indented(indent, finding_lines(next(places), part, width - len(indent)))
        elif isinstance(part, Table | Pictured):
            out += _indented(indent, _table(part, width - len(indent)))
        before = part
    return cut_off(out, width)


def _is_apart(part: Part, before: Part | None) -> bool:
    """Whether a line is left free between the two."""
    if isinstance(part, Heading):
        return True
    if isinstance(before, Heading):
        return before.level == 1
    grids = (Table, Pictured)
    ends = isinstance(part, grids) or isinstance(before, grids)
    return ends or "answer" in {_kind(part), _kind(before)}


def _kind(part: Part | None) -> str:
    return part.kind if isinstance(part, Sentence) else ""


def _indented(indent: str, lines: Iterable[Text]) -> Iterator[Text]:
    return (Text(indent).append_text(line) for line in lines)


def sentence_lines(part: Sentence, width: int, indent: str = "", room: int = _LABEL) -> list[Text]:
    """A sentence, its label in a margin of *room* columns."""
    lead = indent + (f"{part.label:<{room}}" if part.label else "- " * (part.kind == "item"))
    joint = " · " if part.kind == "facts" else part.joint
    whole = part.kind == "line"
    lines = [plain(part.text)] if whole else broken(part.text, width - cell_len(lead), joint)
    hang = " " * cell_len(lead)
    style = _STYLES.get(part.kind, "")
    return [Text(hang if place else lead, style).append(line) for place, line in enumerate(lines)]


def broken(sentence: str, width: int, joint: str = " ") -> list[str]:
    """Lines broken at the joint where each part has room on one of its own, else between words."""
    if joint == " ":
        return filled(words_of(sentence), width)
    *parts, last = sentence.split(joint)
    # A comma stays at the end of its line, a dot between two numbers does not.
    ended = joint.rstrip() if joint[0] != " " else ""
    parts = [*(f"{part}{ended}" for part in parts), last]
    if max(map(cell_len, parts)) <= width:
        return filled(parts, width, joint if joint == PLUS else joint.removeprefix(ended))
    return filled(words_of(sentence), width)


def flow(parts: Iterable[str], width: int, joint: str = " ", style: str = "") -> list[Text]:
    """Parts set one after the other, broken into lines between parts only."""
    return [Text(line, style=style) for line in filled(parts, width, joint)]


def cut_off(report: list[Text], width: int) -> list[Text]:
    """The lines, none of them wider."""
    for line in report:
        line.truncate(width, overflow="ellipsis")
    return report


def finding_lines(place: int, finding: FindingView, width: int) -> Iterator[Text]:
    """The title after its number; then the evidence, and a line for every label."""
    number = f"{place}. "
    hang = " " * len(number)
    yield from (Text(line, "bold") for line in wrapped(finding.title, width, number))
    if finding.evidence:
        yield from map(Text, wrapped("; ".join(finding.evidence), width, hang))
    for row in finding.rows:
        yield from map(Text, wrapped(row.text, width, f"{hang}{row.label:<{_FINDING_LABEL}}"))


def _table(part: Table | Pictured, width: int) -> Iterator[Text]:
    table = part.table if isinstance(part, Pictured) else part
    if table.title:
        yield Text(table.title, _TITLE)
    if table.rows:
        grid = text_table(table, width)
        heads = len(grid) - len(table.rows)
        yield from (Text(line, "dim") for line in grid[:heads] if line)
        yield from map(Text, grid[heads:])
    for note in table.notes:
        yield from flow(words_of(note), width, style="dim")
