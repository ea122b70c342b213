"""A browser, and the tab in it: what the page shows, asked for and complained about."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest


if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    # Whatever slips through the checks of a test finds no other host.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)

PAGE = "data/plugin/trainperf/index.html"

PATIENCE_MS = 40_000
"""Of a machine that has much else to do."""

_BETWEEN_MS = 100


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """One browser for all tests; they are skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def picture(tmp_path: Path) -> Callable[[str], Path]:
    """Where a picture goes: `TRAINPERF_PICTURES=docs/images` keeps those of the documentation."""
    kept = os.environ.get("TRAINPERF_PICTURES")
    return lambda name: (Path(kept) if kept else tmp_path) / f"{name}.png"


@dataclass
class Tab:
    """The page in a browser, with all that it asked for and complained about."""

    page: "Page"
    address: str
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, run: str = "", beside: str = "") -> "Page":
        """Go to the page, and wait for the charts if a run is named."""
        chosen = "&".join(f"{k}={v}" for k, v in (("run", run), ("beside", beside)) if v)
        self.page.goto(f"{self.address}{PAGE}#{chosen}")
        if run:
            self.page.wait_for_selector("#report h1")
        return self.page

    def wait_for(self, condition: str) -> None:
        """Wait until the expression is true in the page, whose policy forbids it to ask itself."""
        for _ in range(PATIENCE_MS // _BETWEEN_MS):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(_BETWEEN_MS)
        raise AssertionError(condition)

    def abroad(self) -> list[str]:
        """Requests that left this machine."""
        ours = ("http://127.0.0.1:", "data:", "blob:", "about:")
        return [address for address in self.asked if not address.startswith(ours)]
