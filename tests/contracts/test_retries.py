"""Retries: three tests at most, each named with its reason."""

import re

from support.retries import TRIED_AGAIN
from support.sources import ROOT


def test_three_tests_at_most_are_tried_again_each_for_a_reason() -> None:
    """They are there, and a fourth would hide what it should show."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]

    assert len(TRIED_AGAIN) <= 3
    assert all(TRIED_AGAIN.values())
    for name in TRIED_AGAIN:
        assert sum(f"def {name}(" in source for source in sources) == 1, name


def test_nothing_else_is_tried_again() -> None:
    """By a mark of its own, or by whoever runs the tests."""
    words = re.compile(r"mark\.flaky|\breruns\b|--last-failed")
    own = {"tests/support/retries.py", "tests/contracts/test_retries.py"}
    files = [*(ROOT / "tests").rglob("*.py"), ROOT / "scripts/test", ROOT / ".ci/run"]
    names = {path.relative_to(ROOT).as_posix() for path in files if words.search(path.read_text())}

    assert names <= own
