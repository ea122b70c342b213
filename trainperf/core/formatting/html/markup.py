"""Markup that all our pages share.  One file, printable, light and dark, nothing loaded.

Pieces are `Markup`: text that is already safe.  Everything else is escaped where it is put in.
"""

import html
from collections.abc import Iterable, Sequence

from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.html.palette import inside_style, page_style


class Markup(str):
    """Text that may stand in a page as it is."""

    __slots__ = ()


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def text(words: str) -> Markup:
    """Words as they are: no markup, no control characters."""
    return Markup(html.escape(plain(words)))


def tag(name: str, *inside: Markup, kind: str = "") -> Markup:
    """An element; *kind* is its class, one of the style's own."""
    opened = f'<{name} class="{kind}">' if kind else f"<{name}>"
    return Markup(f"{opened}{''.join(inside)}</{name}>")


def paragraph(words: str, kind: str = "") -> Markup:
    """One paragraph of plain words."""
    return tag("p", text(words), kind=kind)


def bullets(sentences: Iterable[str]) -> Markup:
    """A list, empty if there is nothing to list."""
    items = [tag("li", text(sentence)) for sentence in sentences]
    return tag("ul", *items) if items else Markup("")


def section(heading: str, *inside: Markup) -> Markup:
    """A heading and what belongs to it; nothing if that is empty."""
    if not any(inside):
        return Markup("")
    return tag("section", tag("h2", text(heading)), *inside)


def table(
    head: Sequence[str | Markup],
    rows: Iterable[Sequence[str | Markup]],
    *,
    words: Sequence[int] = (0,),
) -> Markup:
    """A table; columns whose number is in *words* are set to the left.

    Cells are plain text unless they are `Markup` from `tag`.
    """
    body = [_row("td", cells, words) for cells in rows]
    if not body:
        return Markup("")
    grid = tag("table", tag("thead", _row("th", head, words)), tag("tbody", *body))
    return tag("div", grid, kind="scroll")


def page(title: str, *inside: Markup) -> str:
    """The whole file."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{page_style()}</style></head>\n"
        f"<body>{''.join(inside)}</body></html>\n"
    )


_FRAGMENT = "trainperf"


def fragment(*inside: Markup) -> str:
    """The same pieces for a cell of a notebook, in the style of a page."""
    style = Markup(f"<style>{inside_style(_FRAGMENT)}</style>")
    return tag("div", style, *inside, kind=_FRAGMENT)


def portable(written: str) -> str:
    """The same page in ASCII: right in a file, whatever a terminal or a pipe makes of letters."""
    return written.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _row(cell: str, cells: Sequence[str | Markup], words: Sequence[int]) -> Markup:
    return tag(
        "tr",
        *(
            tag(
                cell,
                content if isinstance(content, Markup) else text(content),
                kind="text" if place in words else "",
            )
            for place, content in enumerate(cells)
        ),
    )
