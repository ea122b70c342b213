"""A document as markdown, for issues, pull requests and TensorBoard's text tab.

Names from users are escaped: none can open markup, HTML or a cell.
"""

from collections.abc import Sequence
from itertools import count, groupby

from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.table import Table, markdown_table
from trainperf.reports.layout.document import Chart, Heading, Part, Pictured, Sentence
from trainperf.reports.layout.finding_view import FindingView


_MARKS = {1: "### ", 2: "#### ", 3: "##### "}


def as_markdown(parts: Sequence[Part]) -> str:
    """The whole document; charts are left out."""
    blocks, numbers = [], count(1)
    for listed, group in groupby(parts, key=_is_item):
        lines = [
            _finding(next(numbers), part) if isinstance(part, FindingView) else _block(part)
            for part in group
        ]
        blocks.append(("\n" if listed else "\n\n").join(filter(None, lines)))
    return "\n\n".join(filter(None, blocks)) + "\n"


def _is_item(part: Part) -> bool:
    return isinstance(part, Sentence) and bool(part.label or part.kind == "item")


def _block(part: Heading | Sentence | Table | Pictured | Chart) -> str:
    if isinstance(part, Heading):
        return f"{_MARKS[part.level]}{safe(part.text)}"
    if isinstance(part, Sentence):
        return _sentence(part)
    if isinstance(part, Pictured):
        return _table(part.table)
    return _table(part) if isinstance(part, Table) else ""


def _sentence(part: Sentence) -> str:
    if part.kind == "answer":
        return f"**{safe(part.text)}**"
    label = f"{part.label}: " if part.label else ""
    return f"{'- ' if _is_item(part) else ''}{safe(label + part.text)}"


def _table(table: Table) -> str:
    """A heading if it has one, the rows if there are any, and its notes."""
    title = [f"##### {safe(table.title)}"] if table.title else []
    rows = [markdown_table(table)] if table.rows else []
    notes = [" · ".join(map(safe, table.notes))] if table.notes else []
    return "\n\n".join([*title, *rows, *notes])


def _finding(place: int, finding: FindingView) -> str:
    """An item of a numbered list."""
    lines = [f"**{safe(finding.title)}**"]
    if finding.evidence:
        lines.append(safe("; ".join(finding.evidence)))
    lines += [f"{row.label}: {safe(row.text)}" for row in finding.rows]
    return f"{place}. " + "  \n   ".join(lines)
