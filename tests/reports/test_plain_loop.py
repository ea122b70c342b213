"""Advice fits the loop: who wrote a loop of their own is never told to call Lightning's classes."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.cases import CASES
from support.runs import make_run_dir

from trainperf.analysis.diagnosis import DETECTORS
from trainperf.analysis.doctor import Case, examined
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.core.loop_kind import PLAIN
from trainperf.reports.doctor import checkup_document
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.layout.text import as_text
from trainperf.reports.run.document import run_document
from trainperf.reports.run.page import load_page_data
from trainperf.reports.run.page import render as page
from trainperf.reports.run.text import lines


ROOT = Path(__file__).parents[2]
OF_LIGHTNING = re.compile(
    r"TrainPerf\(|\bTrainer\(|(?<!Loop)Monitor\(\)|ScheduledProfiler\(|self\.log|accumulate_grad_batches="
)
ONLY_UNDER_LIGHTNING = {
    "analysis/diagnosis/changes/fit.py": "of several, by the kind of loop",
    "analysis/diagnosis/changes/host.py": "of several, by the kind of loop",
    "analysis/diagnosis/changes/operators.py": "of several, by the kind of loop",
    "analysis/diagnosis/changes/ranks.py": "of several, by the kind of loop",
    "analysis/diagnosis/offers.py": "the trial that mutes `self.log` as well",
}


def shown_of(run: Run) -> Iterator[tuple[str, str]]:
    """Every form in which a run is shown."""
    data = load_page_data(run, now_s=0.0)
    summary = data.summary
    yield "text", "\n".join(line.plain for line in lines(summary, 100))
    yield "full", as_text(run_document(summary))
    yield "markdown", as_markdown(run_document(summary))
    yield "html", page(data)
    checkup = examined(Case(facts=examine(run, now_s=0.0)))
    yield "doctor", as_text(checkup_document(checkup, "run"))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("case", CASES)
def test_no_form_names_a_class_of_lightning(case: str, device: str, tmp_path: Path) -> None:
    """Whatever the run is like, and however it is shown."""
    ranks = []
    for spec in CASES[case]().ranks:
        info = msgspec.structs.replace(
            spec.info, device=device, config={**spec.info.config, "loop": PLAIN.name}
        )
        ranks.append(replace(spec, info=info))
    run = Run.open(make_run_dir(tmp_path / "gpt2" / "trainperf", ranks))

    named = {form: OF_LIGHTNING.findall(text) for form, text in shown_of(run)}

    assert not any(named.values()), named


def test_advice_asks_the_loop_what_things_are_called() -> None:
    """No rule, check or report types a Lightning call that a plain loop could be told."""
    assert DETECTORS
    package = ROOT / "trainperf"
    named = {
        str(path.relative_to(package))
        for room in ("analysis", "reports", "comparison", "traces", "meters", "audit")
        for path in (package / room).rglob("*.py")
        if OF_LIGHTNING.search(_without_docstrings(path.read_text(encoding="utf-8")))
    }

    assert named == set(ONLY_UNDER_LIGHTNING)


def _without_docstrings(source: str) -> str:
    return re.sub(r'"""(?:.|\n)*?"""', "", source)
