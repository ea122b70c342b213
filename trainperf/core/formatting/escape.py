"""Text made safe for where it is shown: terminals, markdown, and streams of any encoding."""

import re
import unicodedata
from typing import TextIO


_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that move the cursor, reorder text or show nothing: escape sequences begin
with one of them, and so do the marks that make text read backwards."""

_ASCII = str.maketrans(
    {"█": "#", "·": "-", "×": "x", "–": "-", "—": "-", "…": "...", "µ": "u"}
    | dict.fromkeys("▏▎▍▌▋▊▉", "")
)
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~$])")


def plain(text: str) -> str:
    """*text* on one line, with nothing in it that a terminal would obey."""
    if text.isprintable():  # nearly always: no letter of it is in a category below
        return text
    spaced = re.sub(r"[\t\n\r\v\f]+", " ", text)
    return "".join(
        _REPLACEMENT if unicodedata.category(letter) in _HIDDEN else letter for letter in spaced
    )


def markdown(text: str) -> str:
    """*text* as one line of markdown that reads as it is written: no markup, no HTML, no cell."""
    escaped = _MARKDOWN.sub(r"\\\1", plain(text))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def encodable(text: str, stream: TextIO) -> str:
    """*text*, with plain letters for the typographic ones that the stream cannot take."""
    encoding = stream.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    return text
