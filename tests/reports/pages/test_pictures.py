"""The report page's pictures of the documentation: `TRAINPERF_PICTURES=docs/images` keeps them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.tab import write_capture
from support.vivid import vivid_run, vivid_trace

from trainperf.analysis.run.directory import Run
from trainperf.commands._comparison import ComparisonOptions, compare_sides
from trainperf.reports.run.page import load_page_data, render


if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.slow, pytest.mark.beside]

WIDTH, HEIGHT = 1100, 2200

Picture = Callable[[str], Path]


@pytest.fixture
def photographed(browser: "Browser", tmp_path: Path) -> Callable[..., None]:
    """Draws the top of a page."""

    def take(page: str, picture: Path, *, dark: bool = False) -> None:
        file = tmp_path / "page.html"
        file.write_text(page, encoding="utf-8")
        with browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="dark" if dark else "light"
        ) as context:
            tab = context.new_page()
            tab.goto(file.as_uri())
            tab.screenshot(path=picture)

    return take


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_run(
    tmp_path: Path, photographed: Callable[..., None], picture: Picture, *, dark: bool
) -> None:
    """Two ranks with a capture, in the reader's colours."""
    run = vivid_run(tmp_path, "workers-2")
    write_capture(run, vivid_trace())
    page = render(load_page_data(Run.open(run)))

    photographed(page, picture(f"report-{'dark' if dark else 'light'}"), dark=dark)

    assert "DataLoader(" in page


def test_a_comparison(tmp_path: Path, photographed: Callable[..., None], picture: Picture) -> None:
    """Two repeats a side, with two and with eight workers."""
    before, after = (
        [vivid_run(tmp_path, f"{name}{seed}", workers=workers, seed=seed) for seed in (1, 2)]
        for name, workers in (("before", 2), ("after", 8))
    )
    page = compare_sides([before, after], ComparisonOptions(form="html")).text

    photographed(page, picture("report-compare"))

    assert "after1 against before1: faster" in page
