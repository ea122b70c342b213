"""How does a benchmark's report read?  Columns of equal width, and sentences that end in time."""

import textwrap
from collections.abc import Iterable, Sequence


WIDTH = 100


def aligned(rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """A line for every row, the head being one: the first *words* columns left, the others right.

    Lines end in blanks where a cell is shorter than its column.
    """
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, wide, strict=True))
        )
        for row in rows
    ]


def wrapped(sentences: Iterable[str]) -> list[str]:
    """Lines of at most `WIDTH`, each sentence on its own."""
    return [line for sentence in sentences for line in textwrap.wrap(sentence, WIDTH)]
