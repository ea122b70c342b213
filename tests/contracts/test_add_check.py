"""A check of the doctor is one entry of a table: then every form of the checkup has it."""

import json

import pytest
from support.cases import CASES
from support.extended import ExtendedPackage
from support.runs import make_run_dir

from trainperf.analysis.doctor import CHECKS


CHECK = (
    'Check(id="planted", about="Nothing is planted in the step.\\n\\nFails always.", '
    'looks=[answer("fail", "{facts.steps} roots", action="use the spade twice")]),'
)

SHOW = """
import contextlib, io, json, sys
from trainperf.commands import main

run, shown = sys.argv[1], {}
for form in ("text", "markdown", "json"):
    sys.argv = ["trainperf", "doctor", run, "--format", form]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main() == 0
    shown[form] = out.getvalue()
print(json.dumps(shown))
"""

RENDER_DOCS = """
import sys
from scripts.render_docs import main
sys.argv = ["render_docs", "--out", sys.argv[1]]
main()
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The checkup of a run by a package with one check more."""
    folder = tmp_path_factory.mktemp("checkout")
    package = ExtendedPackage.copied_to(folder)
    package.add_line("analysis/doctor/checks.py", CHECK, after="CHECKS: tuple[Check, ...] = (")
    run = make_run_dir(folder / "runs" / "trainperf", CASES["loader_bound"]().ranks)
    shown: dict[str, str] = json.loads(package.run(SHOW, run))
    package.run(RENDER_DOCS, folder / "docs")
    page = folder / "docs" / "reference" / "checks.md"
    shown["docs"] = page.read_text(encoding="utf-8")
    return shown


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_the_check_is_in_every_form(shown: dict[str, str], form: str) -> None:
    """With its promise, its evidence and what to do."""
    assert "Nothing is planted in the step" in shown[form]
    assert "use the spade twice" in shown[form]


def test_it_is_counted(shown: dict[str, str]) -> None:
    """No number of checks is typed anywhere."""
    assert f"of {len(CHECKS) + 1} checks" in shown["text"]
    assert len(json.loads(shown["json"])["checks"]) == len(CHECKS) + 1


def test_it_has_a_row_in_the_reference(shown: dict[str, str]) -> None:
    """The page is generated from the family."""
    assert "| `planted` | Nothing is planted in the step | Fails always. |" in shown["docs"]
