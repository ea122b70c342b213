"""Wrapped text with a style, for Rich."""

from collections.abc import Iterable

from rich.text import Text

from trainperf.core.formatting.wrap import PLUS, filled, words_of


__all__ = ["PLUS", "flow", "words_of"]


def flow(parts: Iterable[str], width: int, joint: str = " ", style: str = "") -> list[Text]:
    """Parts set one after the other, broken into lines between parts only."""
    return [Text(line, style=style) for line in filled(parts, width, joint)]
