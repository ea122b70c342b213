"""What a browser makes of one of our pages, and what a page may hold at all."""

import re
from html.parser import HTMLParser


VOID = {"meta", "br"}
ELEMENTS = frozenset(
    "html head meta title style body header section footer div h1 h2 h3 p b code span".split()  # noqa: SIM905 as one reads it
    + "ul li dl dt dd details summary table thead tbody tr th td svg path rect".split()  # noqa: SIM905 likewise
)


class Page(HTMLParser):
    """What a browser would make of a page: its elements and its words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.words = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element opens."""
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """It closes."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Words."""
        self.words += data


def asks_for_something(page: str) -> list[str]:
    """Whatever in a page would load, run or send something; nothing may."""
    return re.findall(r"<script|<link|<img|<iframe|<form|\bsrc=|\bhref=|url\(|@import", page)
