"""The pages in a browser: what is on the disk is what is drawn, and nothing is asked for."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.browser import PATIENCE_MS
from support.cases import CASES
from support.runs import make_run_dir
from support.tab import a_run, steps_of

from trainperf.analysis.run.directory import Run
from trainperf.commands._comparison import ComparisonOptions, compare_sides
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
    share: float = tab.evaluate(
        """() => {
            const bars = [...document.querySelectorAll("tbody .meter")];
            const wide = bars.map((bar) => bar.getBoundingClientRect().width);
            return wide[0] / wide.reduce((sum, each) => sum + each, 0);
        }"""
    )
    return share


@pytest.mark.parametrize("data_wait_ms", [20.0, 90.0])
def test_what_is_on_the_disk_is_what_is_drawn(
    data_wait_ms: float, tmp_path: Path, opened: Opened
) -> None:
    """Other records, another bar: as wide as the phase is long."""
    run = a_run(tmp_path, steps=steps_of(100, data_wait=data_wait_ms))
    tab = opened(render(load_page_data(Run.open(run))))

    # Beside it 14 to 16 ms of forward, 13 of backward and 3 of the optimizer.
    assert first_bar(tab) == pytest.approx(data_wait_ms / (data_wait_ms + 31), abs=0.005)


def test_a_slow_step_is_where_it_was(tmp_path: Path, opened: Opened) -> None:
    """The line of the slowest steps rises at its place, in the picture over the fit."""
    steps = steps_of(1000)
    steps[700] = steps_of(1, first=700, data_wait=45.0)[0]
    tab = opened(render(load_page_data(Run.open(a_run(tmp_path, steps=steps)))))

    line = tab.locator("path.slowest").first.get_attribute("d") or ""
    points = [tuple(map(float, pair.split())) for pair in re.split("[ML]", line) if pair]
    highest = min(points, key=lambda point: point[1])
    assert highest[0] == pytest.approx(700, abs=5)


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


def test_names_are_words(tmp_path: Path, opened: Opened) -> None:
    """A directory that is called like markup is read as it is called."""
    run = a_run(tmp_path, "<img src=x onerror=document.title='gone'>")
    tab = opened(render(load_page_data(Run.open(run))))

    assert "<img src=x" in tab.title()
    assert tab.locator("img").count() == 0


def test_a_comparison_shows_both_runs_to_one_scale(tmp_path: Path, opened: Opened) -> None:
    """A step that takes half the time has a bar of half the width."""
    slow = a_run(tmp_path, "slow", steps_of(100, data_wait=62.0))
    fast = a_run(tmp_path, "fast", steps_of(100, data_wait=15.5))
    tab = opened(compare_sides([[slow], [fast]], ComparisonOptions(form="html")).text)

    wide = tab.evaluate(
        """() => [...document.querySelectorAll(".plot.bare svg")].map((bar) =>
            [...bar.querySelectorAll("rect")].reduce((sum, part) =>
                sum + part.getBoundingClientRect().width, 0))"""
    )
    assert wide[1] / wide[0] == pytest.approx(46.5 / 93, abs=0.01)
    assert tab.locator("h1").inner_text().startswith("fast against slow: ")
