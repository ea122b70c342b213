"""How is a text broken into lines that a terminal can show?"""

import re
from collections.abc import Iterable

from rich.cells import cell_len
from rich.text import Text

from trainperf.core.formatting.escape import plain


PLUS = " + "


def flow(parts: Iterable[str], width: int, joint: str = " ", style: str = "") -> list[Text]:
    """Parts set one after the other, broken into lines between parts only.

    A plus stays at the end of its line: a sum must be seen to go on.
    """
    out: list[str] = []
    for part in parts:
        safe = plain(part)
        if out and cell_len(out[-1]) + cell_len(joint) + cell_len(safe) <= width - (
            2 if joint == PLUS else 0
        ):
            out[-1] += joint + safe
        else:
            if out and joint == PLUS:
                out[-1] += joint.rstrip()
            out.append(safe)
    return [Text(line, style=style) for line in out]


def words_of(text: str) -> list[str]:
    """Words to break lines between; a number stays with its unit."""
    return re.split(r"(?<!\d) ", text) if text else []
