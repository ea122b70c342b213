"""The site is built without a warning, and is read without a network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


# `scripts/test` builds the site before any test, and says what is wrong with it.
pytestmark = [pytest.mark.slow, pytest.mark.beside]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages, as `scripts/test` builds them."""
    pytest.importorskip("mkdocs", reason="the dependency group docs is not installed")
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(target)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return target


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    """Neither scripts, styles, fonts nor pictures."""
    loading = re.compile(r"<(?:script|img|iframe)[^>]+src=\"https?:|<link[^>]+href=\"https?:")

    assert [p.name for p in site.rglob("*.html") if loading.search(p.read_text("utf-8"))] == []


def test_the_reference_has_the_docstrings(site: Path) -> None:
    """Of the callback and of its arguments."""
    page = (site / "reference" / "api" / "lightning.html").read_text("utf-8")

    assert "trainperf.lightning.TrainPerf" in page
    assert "audit_at" in page
