"""What every check promises.  A new member of `CHECKS` is picked up by itself."""

from pathlib import Path

import pytest

from trainperf.analysis.diagnosis import DETECTORS
from trainperf.analysis.doctor import CHECKS, Check


EACH = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
KNOWN = {detect.__name__ for detect in DETECTORS}
DOCS = (Path(__file__).parents[3] / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")


def test_most_checks_leave_the_decision_to_the_diagnosis() -> None:
    """Else the two tests below look at nothing."""
    assert sum(bool(check.causes) for check in CHECKS) > len(CHECKS) // 2


@EACH
def test_its_page_says_what_it_promises(check: Check) -> None:
    """In its own words."""
    assert f"| `{check.id}` | {check.title} |" in DOCS


@EACH
def test_the_causes_that_fail_it_exist(check: Check) -> None:
    """One of another name would never be found, and the check always pass."""
    assert set(check.causes) <= KNOWN


@EACH
def test_its_description_names_the_findings_that_fail_it(check: Check) -> None:
    """The page of the documentation shows the description, and nobody keeps a second list."""
    assert all(f"`{name}`" in check.about for name in check.causes)
