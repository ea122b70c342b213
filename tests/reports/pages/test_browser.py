"""The pages in a browser: what is on the disk is what is drawn, and nothing is asked for."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.browser import PATIENCE_MS
from support.cases import CASES
from support.runs import make_run_dir
from support.tab import a_run, steps_of

from trainperf.analysis.run.directory import Run
from trainperf.reports.run.page import load_page_data, render


if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.slow, pytest.mark.beside]

WHITE = "rgb(255, 255, 255)"

Opened = Callable[..., "Page"]


@pytest.fixture
def opened(browser: "Browser", tmp_path: Path) -> Iterator[Opened]:
    """Opens a page as a file; fails at the end if one asked for more or complained."""
    asked: list[str] = []
    complaints: list[str] = []
    contexts = []

    def show(page: str, *, dark: bool = False, width: int = 1280) -> "Page":
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        file = tmp_path / f"{len(contexts)}.html"
        file.write_text(page, encoding="utf-8")
        tab = context.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda said: complaints.append(said.text))
        tab.goto(file.as_uri())
        return tab

    yield show
    for context in contexts:
        context.close()
    assert asked == [(tmp_path / f"{number + 1}.html").as_uri() for number in range(len(contexts))]
    assert complaints == []


def page_of(case: str, path: Path) -> str:
    """The page of a run of the catalogue."""
    return render(
        load_page_data(Run.open(make_run_dir(path / case / "trainperf", CASES[case]().ranks)))
    )


def first_bar(tab: "Page") -> float:
    """Width on the screen of the data wait's bar, as a share of the bars of all phases."""
    return tab.evaluate(
        """() => {
            const bars = [...document.querySelectorAll("tbody .meter")];
            const wide = bars.map((bar) => bar.getBoundingClientRect().width);
            return wide[0] / wide.reduce((sum, each) => sum + each, 0);
        }"""
    )


@pytest.mark.parametrize("data_wait_ms", [20.0, 90.0])
def test_what_is_on_the_disk_is_what_is_drawn(
    data_wait_ms: float, tmp_path: Path, opened: Opened
) -> None:
    """Other records, another bar: as wide as the phase is long."""
    run = a_run(tmp_path, steps=steps_of(100, data_wait=data_wait_ms))
    tab = opened(render(load_page_data(Run.open(run))))

    # Beside it 14 to 16 ms of forward, 13 of backward and 3 of the optimizer.
    assert first_bar(tab) == pytest.approx(data_wait_ms / (data_wait_ms + 31), abs=0.005)


@pytest.mark.parametrize("width", [480, 1280])
@pytest.mark.parametrize("case", ["straggler", "hostile", "no_step"])
def test_no_page_is_wider_than_the_screen(
    case: str, width: int, tmp_path: Path, opened: Opened
) -> None:
    """What does not fit scrolls in its own frame."""
    tab = opened(page_of(case, tmp_path), width=width)

    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_it_is_dark_where_the_reader_is_and_white_on_paper(tmp_path: Path, opened: Opened) -> None:
    """Without a script and without a switch."""
    page = page_of("loader_bound", tmp_path)
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.body).color"
    light, dark = opened(page), opened(page, dark=True)

    assert light.evaluate(ground) != dark.evaluate(ground)
    assert light.evaluate(ink) != dark.evaluate(ink)
    dark.emulate_media(media="print")
    assert dark.evaluate(ground) == WHITE
    assert dark.evaluate(ink) == "rgb(0, 0, 0)"
