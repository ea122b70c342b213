"""One palette for the pages and the tab: defined once, complete, and readable."""

import re
from pathlib import Path

import pytest

from trainperf.core.formatting.html import palette
from trainperf.tensorboard.plugin import STATIC


PAGES = Path(palette.__file__).parent / "style.css"
RULES = [PAGES.read_text(encoding="utf-8"), (STATIC / "style.css").read_text(encoding="utf-8")]
SCRIPTS = [path.read_text(encoding="utf-8") for path in STATIC.glob("*.js")]


@pytest.mark.parametrize("text", [RULES[1], *SCRIPTS], ids=lambda text: str(len(text)))
def test_the_tab_defines_no_colour_of_its_own(text: str) -> None:
    """A colour in a style sheet or a script would drift from that of the pages."""
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?!=)", text) == []


@pytest.mark.parametrize("rules", RULES, ids=["pages", "tab"])
def test_every_colour_that_is_used_is_defined(rules: str) -> None:
    """A variable without a value is black, or nothing."""
    defined = set(re.findall(r"(--[\w-]+):", palette.variables()))

    assert set(re.findall(r"var\((--[\w-]+)\)", rules)) <= defined


def test_the_scripts_ask_for_colours_that_are_defined() -> None:
    """Plotly is given their values."""
    defined = set(re.findall(r"--([\w-]+):", palette.variables()))
    names = {name for script in SCRIPTS for name in re.findall(r'colour\("([\w-]+)"\)', script)}

    assert names <= defined


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["page", "card", "tint"])
@pytest.mark.parametrize("name", ["text", "quiet", "accent", "good", "bad", "warn"])
def test_words_can_be_read_on_every_ground(name: str, ground: str, mode: int) -> None:
    """A contrast of 4.5, as the WCAG asks of text."""
    above, below = (_luminance(palette.NEUTRALS[key][mode]) for key in (name, ground))
    ratio = (max(above, below) + 0.05) / (min(above, below) + 0.05)

    assert ratio >= 4.5


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
