"""Colours of the documentation's pictures: those of the report pages, light."""

import re

from trainperf.core.formatting.html.style import STYLE


def _colour(name: str) -> str:
    match = re.search(rf"--{name}: (#[0-9a-f]+)", STYLE)
    if match is None:
        raise KeyError(f"--{name} is no colour of the report pages' style sheet")
    return match[1]


COLOURS = {
    **{name: _colour(name) for name in ("page", "card", "line", "ink", "soft", "accent")},
    "live": _colour("c1"),
    "offline": _colour("c2"),
}
"""By what they are for; the first match in the sheet is the light theme."""
