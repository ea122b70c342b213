"""What is a table, in every format?"""

from dataclasses import dataclass


UNKNOWN = "–"
"""In the cell of a figure that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows that belong together, and what is said beneath them."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    """Leading columns that are words; the others are numbers."""
    notes: tuple[str, ...] = ()
