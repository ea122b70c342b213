"""What every check promises.  A new member of `CHECKS` is picked up by itself."""

import importlib
from pathlib import Path

import pytest

from trainperf.analysis.doctor import CHECKS, Check, title_of
from trainperf.analysis.rules import RULES


EACH = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
KNOWN = {rule.__name__ for rule in RULES}
DOCS = (Path(__file__).parents[3] / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")


@EACH
def test_it_is_documented_and_lives_in_a_file_of_its_name(check: Check) -> None:
    """One check, one file; its title is what it promises, and the page on it says the same."""
    assert check.__module__ == f"trainperf.analysis.doctor.{check.__name__}"
    assert f"| `{check.__name__}` | {title_of(check)} |" in DOCS


@EACH
def test_the_rules_it_asks_exist(check: Check) -> None:
    """A rule of another name would never find anything, and the check always pass."""
    module = importlib.import_module(check.__module__)
    names = ("FAILS_ON", "RULES", "MORE_EXACT")
    asked = {rule for name in names for rule in getattr(module, name, ())}

    assert asked <= KNOWN


@EACH
def test_its_description_names_the_findings_that_fail_it(check: Check) -> None:
    """The page of the documentation shows the description, and nobody keeps a second list."""
    module = importlib.import_module(check.__module__)
    ids = (*getattr(module, "FAILS_ON", ()), *getattr(module, "RULES", ()))

    assert all(f"`{name}`" in (check.__doc__ or "") for name in ids)
