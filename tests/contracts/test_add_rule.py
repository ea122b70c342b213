"""A rule is one file and one line: then every report has its finding."""

import json

import pytest
from support.cases import CASES
from support.extended import ExtendedPackage
from support.runs import make_run_dir


RULE = '''"""A rule that a contributor adds."""

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.base import TraceTime
from trainperf.core.findings import Finding, amdahl


TRACE_TIME: TraceTime = "operators"
LIMIT = 0.0


def planted(evidence: Evidence) -> Finding | None:
    """Every run deserves this planted diagnosis."""
    if evidence.summary.run.steps <= LIMIT:
        return None
    return Finding(
        id="planted",
        title="nine tenths of the step are planted",
        advice="Dig it up",
        evidence=("17 roots were counted",),
        action="use the spade twice",
        fraction=0.9,
        gain_upper_bound=amdahl(0.9),
        where="garden.py:3",
        confirm="the next run has no roots",
    )
'''

SHOW = """
import json, sys
from pathlib import Path
from trainperf.analysis.rules import RULES, trace_time
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
shown["tab"] = store.run("first/trainperf", View()).body.decode()
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
(finding,) = [f for f in summarize(Run.open(Path(run)), now_s=0.0).findings if f.id == "planted"]
shown["trace_time"] = trace_time(finding)
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
    """Every report of a run by a package with one rule more."""
    folder = tmp_path_factory.mktemp("checkout")
    package = ExtendedPackage.copied_to(folder)
    package.add_file("analysis/rules/host/planted.py", RULE)
    package.add_line("analysis/rules/__init__.py", '"host.planted",', after='"host.callbacks",')
    run = make_run_dir(folder / "runs" / "first" / "trainperf", CASES["loader_bound"]().ranks)
    shown: dict[str, str] = json.loads(package.run(SHOW, run))
    package.run(RENDER_DOCS, folder / "docs")
    page = folder / "docs" / "reference" / "findings.md"
    shown["docs"] = page.read_text(encoding="utf-8")
    return shown


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json", "tab"])
def test_the_finding_is_in_every_report(shown: dict[str, str], form: str) -> None:
    """What to do first, and where; nothing else had to be told of the rule."""
    assert "use the spade twice" in shown[form]
    assert "garden.py:3" in shown[form]


def test_the_finding_says_what_a_trace_must_show(shown: dict[str, str]) -> None:
    """So that the doctor judges it without a list of its own."""
    assert shown["trace_time"] == "operators"


def test_it_has_a_row_in_the_reference(shown: dict[str, str]) -> None:
    """The page is generated from the family."""
    assert "| `planted` | Every run deserves this planted diagnosis. |" in shown["docs"]
