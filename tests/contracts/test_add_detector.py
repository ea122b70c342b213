"""A detector is one file and one line: then every report has its finding."""

import json

import pytest
from support.cases import CASES
from support.extended import ExtendedPackage
from support.runs import make_run_dir


DETECTOR = '''"""A detector that a contributor adds."""

from trainperf.analysis.diagnosis.account import Claim, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.facts import Facts


LIMIT = 0.0


def planted(account: StepAccount, facts: Facts) -> Cause | None:
    """Every run deserves this planted diagnosis.

    Wrong where: nothing was planted.
    To confirm: dig.
    """
    if facts.steps <= LIMIT:
        return None
    return Cause(
        id="planted",
        title="nine tenths of the step are planted",
        evidence=("17 roots were counted",),
        changes=(Use(change="compile_step"),),
        claim=Claim(removes_s=0.9 * account.step_s),
        where="garden.py:3",
    )
'''

SHOW = """
import json, sys
from pathlib import Path
from trainperf.commands import main
from trainperf.tensorboard.data import Store, View
import contextlib, io

run = sys.argv[1]
shown = {}
for form in ("text", "markdown", "html", "json"):
    sys.argv = ["trainperf", "report", run, "--format", form]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main() == 0
    shown[form] = out.getvalue()
store = Store([Path(run).parents[1]], lambda: 1_000_000_000.0)
shown["tab"] = store.run("first/trainperf", View()).decode()
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
    """Every report of a run by a package with one detector more."""
    folder = tmp_path_factory.mktemp("checkout")
    package = ExtendedPackage.copied_to(folder)
    package.add_file("analysis/diagnosis/detectors/planted.py", DETECTOR)
    package.add_line(
        "analysis/diagnosis/__init__.py", '"planted:planted",', after='"host:callbacks",'
    )
    run = make_run_dir(folder / "runs" / "first" / "trainperf", CASES["loader_bound"]().ranks)
    shown: dict[str, str] = json.loads(package.run(SHOW, run))
    package.run(RENDER_DOCS, folder / "docs")
    page = folder / "docs" / "reference" / "findings.md"
    shown["docs"] = page.read_text(encoding="utf-8")
    return shown


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json", "tab"])
def test_the_finding_is_in_every_report(shown: dict[str, str], form: str) -> None:
    """What to do first, and where; nothing else had to be told of the detector."""
    assert "torch.compile(model" in shown[form].replace("\\", "")
    assert "garden.py:3" in shown[form]


def test_it_has_a_row_in_the_reference(shown: dict[str, str]) -> None:
    """The page is generated from the family."""
    assert "| `planted` | Every run deserves this planted diagnosis. " in shown["docs"]
