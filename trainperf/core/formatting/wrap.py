"""Line breaking for terminals: a number stays with its unit, and a sum is seen to go on."""

import re
import unicodedata
from collections.abc import Iterable

from trainperf.core.formatting.escape import plain


WIDTH = 100
"""Columns of a report that is not laid out for a particular terminal."""

PLUS = " + "


def columns_of(text: str) -> int:
    """Columns that *text* takes in a terminal: two for a wide letter, none for an accent.

    Rich knows more about emoji, but takes longer to load than a small trace to be read.
    """
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, columns: int) -> str:
    """The beginning of *text* that takes so many columns, with a space for half a letter."""
    end, taken = 0, 0
    while end < len(text) and taken + _columns(text[end]) <= columns:
        taken += _columns(text[end])
        end += 1
    return text[:end] + " " * (columns - taken)


def _columns(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def words_of(text: str) -> list[str]:
    """Words to break lines between; a number stays with its unit."""
    return re.split(r"(?<!\d) ", text) if text else []


def filled(parts: Iterable[str], width: int, joint: str = " ") -> list[str]:
    """Parts set one after the other, broken into lines between parts only; escaped.

    A plus stays at the end of its line: a sum must be seen to go on.
    """
    lines: list[str] = []
    for part in map(plain, parts):
        room = width - 2 if joint == PLUS else width
        if lines and columns_of(lines[-1]) + columns_of(joint) + columns_of(part) <= room:
            lines[-1] += joint + part
        else:
            if lines and joint == PLUS:
                lines[-1] += joint.rstrip()
            lines.append(part)
    return lines


def wrapped(text: str, width: int = WIDTH, lead: str = "") -> list[str]:
    """A sentence as lines of at most *width*: *lead*, and below it as much room."""
    lines = filled(words_of(text), width - columns_of(lead)) or [""]
    hang = " " * columns_of(lead)
    return [f"{hang if place else lead}{line}" for place, line in enumerate(lines)]


def paragraphs(sentences: Iterable[str], width: int = WIDTH) -> list[str]:
    """Each sentence wrapped, beginning on a line of its own."""
    return [line for sentence in sentences for line in wrapped(sentence, width)]
