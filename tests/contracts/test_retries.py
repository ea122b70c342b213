"""Retries: only for tests marked as reading a real clock, at most two, and counted."""

import os
import re
import subprocess
import sys
from pathlib import Path


TESTS = Path(__file__).parents[1]

PLANTED = """
import pytest

tries = {"late": 0, "never": 0, "unmarked": 0}

def fails_until(name, last):
    tries[name] += 1
    assert tries[name] >= last

@pytest.mark.real_clock
def test_late():
    fails_until("late", 3)

@pytest.mark.real_clock
def test_never():
    fails_until("never", 4)

def test_unmarked():
    fails_until("unmarked", 2)
"""


def test_two_retries_for_a_real_clock_none_for_the_others_and_the_summary_counts(
    tmp_path: Path,
) -> None:
    """The third try counts, a fourth is not made; without the mark the first one decides."""
    planted = tmp_path / "test_planted.py"
    planted.write_text(PLANTED, encoding="utf-8")

    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-c", TESTS.parent / "pyproject.toml"),
            *("-p", "no:cacheprovider", "-p", "rerunfailures", "-p", "support.retries"),
            *("--rootdir", tmp_path, planted),
        ],
        cwd=TESTS.parent,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # a second instead of ten
        capture_output=True,
        text=True,
        check=False,
    )

    assert "2 failed, 1 passed, 4 rerun" in ended.stdout, ended.stdout + ended.stderr
    assert "1 passed only on a retry: test_planted.py::test_late" in ended.stdout


def test_nothing_else_is_retried() -> None:
    """No test brings its own retries: whoever is not marked runs once."""
    own = [
        path.relative_to(TESTS)
        for path in TESTS.rglob("*.py")
        if path.name not in {"retries.py", Path(__file__).name}
        and re.search(r"\bmark\.flaky\b|\breruns\b", path.read_text(encoding="utf-8"))
    ]

    assert own == []
