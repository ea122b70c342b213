"""Which pieces do our pages share beyond the shell?  Numbers, tables, and what is missing."""

from collections.abc import Iterable, Sequence

from trainperf.reports.html.page import Markup, paragraph, table, tag, text
from trainperf.reports.table import Table


def facts(known: Iterable[tuple[str, str]]) -> Markup:
    """Single numbers, each under its name."""
    pairs = [tag("div", tag("dt", text(name)), tag("dd", text(said))) for name, said in known]
    return tag("dl", *pairs, kind="facts") if pairs else Markup("")


def heading(words: str) -> Markup:
    """A heading inside a section."""
    return tag("h3", text(words))


def shown(one: Table) -> Markup:
    """A table of any report with its title and its notes."""
    head = [name or "\u00a0" for name in one.head]
    grid = table(head, one.rows, words=range(one.words))
    notes = paragraph(" · ".join(one.notes), "soft small") if one.notes else Markup("")
    return Markup(heading(one.title) + grid + notes)


def missing(reasons: Sequence[tuple[str, str]]) -> Markup:
    """What there is nothing to show of, each with why."""
    lines = [tag("li", tag("b", text(name)), text(f": {_reason(why)}")) for name, why in reasons]
    return tag("ul", *lines, kind="absent") if lines else Markup("")


def not_measured(why: str) -> Markup:
    """In the place of a figure."""
    return paragraph(_reason(why), "absent")


def meter(share: float, kind: str) -> Markup:
    """A bar in a cell of a table, a share of the cell's width."""
    wide = min(1.0, max(0.0, share)) * 100
    return Markup(f'<span class="meter {kind}" style="width:{wide:.2f}%"></span>')


def _reason(why: str) -> str:
    """Says that it is missing where the reason does not."""
    told = why.startswith(("not measured", "not applicable", "not "))
    return why if told else f"not measured: {why}"
