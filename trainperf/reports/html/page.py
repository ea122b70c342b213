"""What do all our pages have in common?  One file, printable, light and dark, nothing loaded.

Pieces are `Markup`: text that is already safe.  Everything else is escaped where it is put in.
"""

import html
from collections.abc import Iterable, Sequence

from trainperf.reports.safe import plain


class Markup(str):
    """Text that may stand in a page as it is."""

    __slots__ = ()


_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c2024; --soft: #60646c;
  --line: #d9d9e0; --card: #f7f7f9; --good: #218358; --bad: #ce2c31; --c0: #e5484d; --c1: #8e4ec6;
  --c2: #3e63dd; --c3: #0d74ce; --c4: #12a594; --c5: #ffb224; --c6: #ad7f58; --c7: #8b8d98; }
@media (prefers-color-scheme: dark) { :root { --paper: #111113; --ink: #edeef0; --soft: #b0b4ba;
  --line: #363a3f; --card: #18191b; --good: #3dd68c; --bad: #ff9592; } }
@media print { :root { --paper: #ffffff; --ink: #000000; --soft: #444444; --line: #cccccc;
  --card: #ffffff; } section { break-inside: avoid; } }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 0 .5rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p, ul { margin: .4rem 0; } ul { padding-left: 1.2rem; }
.soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { color: var(--soft); font-weight: 500; }
th.text, td.text { text-align: left; }
td.text { overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; margin: .5rem 0; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
svg .axis { stroke: var(--line); stroke-width: 1; fill: none; }
.finding { background: var(--card); border-left: 3px solid var(--c2); padding: .5rem .8rem;
  margin: .6rem 0; }
code { font-family: ui-monospace, monospace; font-size: .92em; overflow-wrap: anywhere; }
.key { display: inline-block; width: .7em; height: .7em; margin-right: .35em; }
"""


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
    head: Sequence[str], rows: Iterable[Sequence[str | Markup]], *, words: Sequence[int] = (0,)
) -> Markup:
    """A table; columns whose number is in *words* are set to the left.

    Cells are plain text unless they are `Markup` from `tag`.
    """
    body = [_row("td", cells, words) for cells in rows]
    if not body:
        return Markup("")
    return tag("table", tag("thead", _row("th", head, words)), tag("tbody", *body))


def page(title: str, *inside: Markup) -> str:
    """The whole file."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body>{''.join(inside)}</body></html>\n"
    )


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
