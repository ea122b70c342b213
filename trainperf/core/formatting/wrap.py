"""Line breaking for terminals: a number stays with its unit, and a sum is seen to go on."""

import re
from collections.abc import Iterable

from rich.cells import cell_len

from trainperf.core.formatting.escape import plain


WIDTH = 100
"""Columns of a report that is not laid out for a particular terminal."""

PLUS = " + "


def words_of(text: str) -> list[str]:
    """Words to break lines between; a number stays with its unit."""
    return re.split(r"(?<!\d) ", text) if text else []


def shortened(name: str, most: int = 140) -> str:
    """The begin of a long name: kernels of templates are functions of hundreds of characters."""
    name = name.removeprefix("void ")
    return name if len(name) <= most else f"{name[: most - 1]}…"


def filled(parts: Iterable[str], width: int, joint: str = " ") -> list[str]:
    """Parts set one after the other, broken into lines between parts only; escaped.

    A plus stays at the end of its line: a sum must be seen to go on.
    """
    lines: list[str] = []
    for part in map(plain, parts):
        room = width - 2 if joint == PLUS else width
        if lines and cell_len(lines[-1]) + cell_len(joint) + cell_len(part) <= room:
            lines[-1] += joint + part
        else:
            if lines and joint == PLUS:
                lines[-1] += joint.rstrip()
            lines.append(part)
    return lines


def wrapped(text: str, width: int = WIDTH, lead: str = "") -> list[str]:
    """A sentence as lines of at most *width*: *lead*, and below it as much room."""
    lines = filled(words_of(text), width - cell_len(lead)) or [""]
    hang = " " * cell_len(lead)
    return [f"{hang if place else lead}{line}" for place, line in enumerate(lines)]


def paragraphs(sentences: Iterable[str], width: int = WIDTH) -> list[str]:
    """Each sentence wrapped, beginning on a line of its own."""
    return [line for sentence in sentences for line in wrapped(sentence, width)]
