"""Docstrings of meters, rules and checks as their readers get them: meaning, method, limits, proof.

The pages of the reference and `trainperf explain` show the same text: what it means in the first
paragraph, then how it is measured, and two marked sentences, each optional::

    Wrong where: when not to believe it.
    To confirm: what shows it by other means.
"""

import inspect
import re
from dataclasses import dataclass


WRONG = "Wrong where"
CONFIRM = "To confirm"

_MARKED = re.compile(rf"\n\s*(?=(?:{WRONG}|{CONFIRM}):)")
_OF_FUNCTION = re.compile(r"(Args|Returns|Raises):")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedText:
    """A docstring in its parts, each on one line."""

    means: str
    """The first paragraph."""
    measured: str
    """What follows it: how it is measured or judged, and what it is not."""
    wrong: str
    """When not to believe it; empty where nothing is said."""
    confirm: str
    """What shows it by other means; empty where nothing is said."""


def documented(docstring: str | None) -> DocumentedText:
    """The parts of a docstring; sections such as `Args:` are left out."""
    text, *marked = _MARKED.split(inspect.cleandoc(docstring or ""))
    kept = [part for part in text.split("\n\n") if not _OF_FUNCTION.match(part)]
    means, *more = kept
    limits = {name: _line(rest) for name, _, rest in (part.partition(":") for part in marked)}
    return DocumentedText(
        means=_line(means),
        measured=_line(" ".join(more)),
        wrong=limits.get(WRONG, ""),
        confirm=limits.get(CONFIRM, ""),
    )


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
