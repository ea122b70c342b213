"""What every check promises.  A new member of `CHECKS` is picked up by itself."""

import inspect
from pathlib import Path

import pytest

from trainperf.analysis.doctor import CHECKS, Check, title_of
from trainperf.analysis.rules import RULES


EACH = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
KNOWN = {rule.__name__ for rule in RULES}
DOCS = (Path(__file__).parents[3] / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")


def asked_rules(check: Check) -> tuple[str, ...]:
    """The rules that `fails_on` was given."""
    ids: tuple[str, ...] = inspect.getclosurevars(check).nonlocals.get("ids", ())
    return ids


def test_most_checks_leave_the_decision_to_rules() -> None:
    """Else the two tests below look at nothing."""
    assert sum(bool(asked_rules(check)) for check in CHECKS) > len(CHECKS) // 2


@EACH
def test_it_is_documented_and_lives_in_the_folder_of_the_family(check: Check) -> None:
    """Its title is what it promises, and the page on it says the same."""
    assert check.__module__.startswith("trainperf.analysis.doctor.")
    assert f"| `{check.__name__}` | {title_of(check)} |" in DOCS


@EACH
def test_the_rules_it_asks_exist(check: Check) -> None:
    """A rule of another name would never find anything, and the check always pass."""
    assert set(asked_rules(check)) <= KNOWN


@EACH
def test_its_description_names_the_findings_that_fail_it(check: Check) -> None:
    """The page of the documentation shows the description, and nobody keeps a second list."""
    assert all(f"`{name}`" in (check.__doc__ or "") for name in asked_rules(check))
