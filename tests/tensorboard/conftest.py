"""TensorBoard with the tab, and a browser that may talk to nothing else."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.browser import PATIENCE_MS, Tab
from support.tab import a_run


if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext


@pytest.fixture(scope="session")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What TensorBoard is started on; each test uses runs of its own in it."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="session")
def address(logdir: Path) -> Iterator[str]:
    """Where TensorBoard answers."""
    a_run(logdir, "0-first")
    process = subprocess.Popen(
        [sys.executable, "-m", "trainperf", "view", str(logdir), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    with process:
        said = process.stdout.readline()
        yield said.removeprefix("trainperf: ").split("#")[0]
        process.kill()


@pytest.fixture
def opened(browser: "Browser", address: str) -> "Iterator[Callable[..., Tab]]":
    """Opens tabs, and at the end fails if one asked another machine or complained."""
    contexts: list[BrowserContext] = []
    tabs: list[Tab] = []

    def tab(*, dark: bool = False, width: int = 1400, height: int = 1000) -> Tab:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
        )
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        made = Tab(context.new_page(), address)
        context.on("request", lambda request: made.asked.append(request.url))
        made.page.on("pageerror", lambda error: made.complaints.append(str(error)))
        made.page.on(
            "console",
            lambda said: made.complaints.append(said.text) if said.type == "error" else None,
        )
        tabs.append(made)
        return made

    yield tab
    for context in contexts:
        context.close()
    assert [each for made in tabs for each in made.abroad()] == []
    assert [each for made in tabs for each in made.complaints] == []
