"""What of a text can a stream take?"""

from typing import TextIO


_ASCII = str.maketrans(
    {"█": "#", "·": "-", "×": "x", "–": "-", "…": "...", "µ": "u", **dict.fromkeys("▏▎▍▌▋▊▉", "")}
)


def encodable(text: str, stream: TextIO) -> str:
    """*text*, with plain letters for the typographic ones that the stream cannot take."""
    encoding = stream.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    return text
