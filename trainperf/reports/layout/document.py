"""The document of every report: a list of parts, which text, Markdown and HTML lay out.

A subject (a run, a comparison, a capture, …) is one function that makes the list.  Texts of parts
are as they are in the files: what cannot stand in a terminal or in markup is escaped by the layout.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from trainperf.core.formatting.html.markup import Markup
from trainperf.core.formatting.table import Table
from trainperf.core.groups import grouped
from trainperf.reports.layout.finding_view import FindingView


Kind = Literal["", "answer", "item", "line", "facts", "first", "soft", "warn", "good", "bad"]
"""How it is set: a `line` is cut where it is too long, `facts` are numbers between dots."""


@dataclass(frozen=True, slots=True)
class Heading:
    """Level 1 is the name of what is reported, 2 begins a section, 3 is inside of one."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A paragraph, an item of a list, or a line with a label before it."""

    text: str
    label: str = ""
    kind: Kind = ""
    joint: str = " "
    """What lies between the parts of the text that are better not broken, e.g. ` · `."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictured:
    """A table with a column of pictures, for a browser."""

    table: Table
    place: int
    """The column that they become."""
    head: Markup
    cells: tuple[Markup, ...]
    instead: int = 0
    """How many columns of the table they stand in place of: what a terminal has there."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture, for a browser alone."""

    picture: Markup
    small: bool = False
    """Whether it stands in a grid of such charts."""


T = TypeVar("T")

Part: TypeAlias = Heading | Sentence | Table | Pictured | FindingView | Chart


def section(title: str, *parts: Iterable[Part], level: int = 2) -> list[Part]:
    """A heading and what belongs to it; nothing if that is empty."""
    inside = [part for group in parts for part in group]
    return [Heading(title, level), *inside] if inside else []


def items(sentences: Iterable[str], kind: Kind = "item", label: str = "") -> list[Part]:
    """A list, paragraphs of another *kind*, or lines with one label."""
    return [Sentence(text=text, label=label, kind=kind) for text in sentences if text]


def parts_of(value: T | None, shown: Callable[[T], Sequence[Part]]) -> Sequence[Part]:
    """The parts of what was looked at; none where it was not."""
    return () if value is None else shown(value)


def missing(reasons: Sequence[tuple[str, str]]) -> list[Part]:
    """What there is nothing to show of, each with why; those of one reason together."""
    return [
        Sentence(text=f"{', '.join(names)}: {not_measured(why)}", kind="soft")
        for why, names in grouped((why, name) for name, why in reasons).items()
    ]


def not_measured(why: str) -> str:
    """Says that something is missing where the reason does not."""
    return why if why.startswith("not ") else f"not measured: {why}"
