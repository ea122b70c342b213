"""What the tab looks like; `TRAINPERF_PICTURES=docs/images` keeps the documentation's pictures."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.browser import Tab
from support.tab import write_capture
from support.vivid import vivid_run, vivid_trace


pytestmark = [pytest.mark.slow, pytest.mark.beside]

Opened = Callable[..., Tab]
Picture = Callable[[str], Path]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_run(logdir: Path, opened: Opened, picture: Picture, *, dark: bool) -> None:
    """All of a run with a capture, in the browser's colours."""
    write_capture(vivid_run(logdir, "workers-2"), vivid_trace())
    page = opened(dark=dark).open("workers-2/trainperf")
    page.wait_for_selector(".capture [data-first]")

    if not dark:
        page.screenshot(path=picture("tab-light"), full_page=True)

    text, behind = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert (brightness(text) > brightness(behind)) is dark


def brightness(colour: str) -> float:
    """Of `rgb(…)`, from 0 to 255."""
    return sum(float(part) for part in colour[4:-1].split(",")[:3]) / 3


def test_two_runs(logdir: Path, opened: Opened, picture: Picture) -> None:
    """The same fit with two and with eight workers."""
    vivid_run(logdir, "workers-2")
    vivid_run(logdir, "workers-8", workers=8)
    tab = opened(height=1100)
    page = tab.open("workers-8/trainperf", "workers-2/trainperf")
    page.wait_for_selector("#comparison h1")

    page.screenshot(path=picture("tab-two-runs"))

    answer = page.locator("#comparison h1").inner_text()
    assert answer.startswith("workers-8 against workers-2: faster")
    page.select_option("#beside", label="nothing")
    tab.wait_for("!document.querySelector('#comparison h1')")
