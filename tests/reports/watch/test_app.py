"""The terminal application, driven by keys without a terminal."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.growing import GrowingRun, even_ranks
from textual.pilot import Pilot
from textual.widgets import Static

from trainperf.analysis.live import LiveRun
from trainperf.reports.watch.app import DARK, LIGHT, WatchApp


pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

LONGEST_S = 30
Script = Callable[[WatchApp, Pilot[None]], Awaitable[None]]


def drive(run: GrowingRun, script: Script, *, size: tuple[int, int] = (80, 24)) -> WatchApp:
    """Start the application, wait for its first look, and go on as the script says.

    Further looks are the script's alone.
    """
    app = WatchApp(LiveRun(run.path), lambda: 1.0e9, every_s=3600)

    async def driven() -> None:
        async with app.run_test(size=size) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            await script(app, pilot)

    # A thread of its own: a browser of other tests keeps a loop running in this one.
    with ThreadPoolExecutor(1) as other:
        other.submit(asyncio.run, asyncio.wait_for(driven(), LONGEST_S)).result()
    return app


def text(app: WatchApp, name: str) -> str:
    """What a part of the screen shows."""
    return str(app.query_one(f"#{name}", Static).render())


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    """Two ranks, with a hundred lines on the disk."""
    growing = GrowingRun(tmp_path / "gpt2" / "trainperf", even_ranks(2, 300))
    growing.grow(100)
    return growing


def test_it_shows_what_is_appended(run: GrowingRun) -> None:
    """A hundred steps, then all, and that it ended."""

    async def script(app: WatchApp, pilot: Pilot[None]) -> None:
        assert "100 steps" in text(app, "status")
        run.finish()
        app.look()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "finished after 300 steps" in text(app, "status")
        assert "Step time 3" in text(app, "view")

    drive(run, script)


def test_keys_go_through_the_views_and_quit(run: GrowingRun) -> None:
    """Tab and arrows, numbers, pause, light and dark, q."""

    async def script(app: WatchApp, pilot: Pilot[None]) -> None:
        first = text(app, "view")
        await pilot.press("tab", "right")
        assert "typical" in text(app, "view")
        await pilot.press("shift+tab", "left")
        assert text(app, "view") == first
        await pilot.press("left")
        assert "next" in text(app, "view")
        await pilot.press("1", "space")
        assert "paused" in text(app, "names")
        assert app.theme == DARK
        await pilot.press("d")
        assert app.theme == LIGHT
        await pilot.press("q")

    assert drive(run, script).return_code == 0


def test_a_run_that_is_taken_away_is_said(run: GrowingRun) -> None:
    """What was read stays on the screen."""

    async def script(app: WatchApp, pilot: Pilot[None]) -> None:
        for file in run.files:
            file.unlink()
        run.path.rmdir()
        app.look()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "100 steps" in text(app, "status")
        assert "no such file" in text(app, "names")

    drive(run, script)


def test_a_screen_of_another_size_is_laid_out_anew(run: GrowingRun) -> None:
    """From 80 columns to 140."""

    async def script(app: WatchApp, pilot: Pilot[None]) -> None:
        before = text(app, "view")
        await pilot.resize_terminal(140, 40)
        await pilot.pause()
        assert text(app, "view") != before
        assert "Latest" in app.export_screenshot()

    drive(run, script)
