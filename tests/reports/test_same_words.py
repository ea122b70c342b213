"""One fact, one wording: a finding reads the same in every renderer."""

import html
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.runs import RankSpec, make_run_dir, make_steps

from trainperf.analysis.diagnosis.decisions import decisions
from trainperf.analysis.run.directory import Run
from trainperf.core.findings import Finding
from trainperf.core.formatting.escape import markdown as escaped
from trainperf.reports.layout.finding_view import (
    CONFIRM,
    DO,
    GAIN,
    finding_view,
)
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.layout.text import as_text
from trainperf.reports.run.document import run_document
from trainperf.reports.run.headline import headline
from trainperf.reports.run.page import PageData, load_page_data
from trainperf.reports.run.page import render as page


LABELS = [DO, GAIN, CONFIRM]
FINDINGS = tuple(
    Finding(
        id=f"finding_{number}",
        title=f"{number} % of the step is lost somewhere",
        advice=f"Mend part {number}",
        evidence=(f"{number} ms per step", f"{number} calls of <f>"),
        action=f"mend(part_{number})",
        fraction=number / 100,
        gain=1 / (1 - number / 200),
        gain_upper_bound=1 / (1 - number / 100),
        confidence="medium",
        severity="high",
        effort="hours",
        where=f"train.py:{number}",
        confirm=f"part_{number}_s falls",
    )
    for number in (40, 30, 20)
)


@pytest.fixture
def seen(tmp_path: Path) -> PageData:
    """The data of a page with three findings of which everything is known."""
    specs = [RankSpec(steps=make_steps(100, data_wait=20, forward=30))]
    run = Run.open(make_run_dir(tmp_path / "gpt2" / "trainperf", specs))
    read = load_page_data(run, now_s=0.0)
    summary = msgspec.structs.replace(read.summary, findings=FINDINGS)
    summary = msgspec.structs.replace(summary, decisions=decisions(summary))
    return replace(read, summary=summary)


def documents(seen: PageData) -> dict[str, str]:
    """What a reader sees in each renderer that has room for everything, on one line."""
    summary = seen.summary
    shown = {
        "full text": as_text(run_document(summary)),
        "markdown": as_markdown(run_document(summary)),
        "html": html.unescape(re.sub(r"<[^>]*>", " ", page(seen))),
    }
    return {name: re.sub(r"\s+", " ", text) for name, text in shown.items()}


def test_every_renderer_shows_every_line_of_every_finding_in_the_same_words(seen: PageData) -> None:
    """Title, evidence, and the labelled rows, in this order; the gain is in one of them."""
    for name, document in documents(seen).items():
        place = 0
        for finding in FINDINGS:
            view = finding_view(finding)
            assert [row.label for row in view.rows] == LABELS
            assert view.text(GAIN).startswith(view.gain)
            assert finding.where in view.title
            place = document.rindex(shown(name, view.title))
            for text in (
                *view.evidence,
                *(part for row in view.rows for part in (row.label, row.text)),
            ):
                place = document.index(shown(name, text), place)


def shown(name: str, text: str) -> str:
    """*text* as the source of that document has it."""
    return escaped(text) if name == "markdown" else text


def test_every_renderer_begins_with_the_same_sentence(seen: PageData) -> None:
    """The headline has one owner."""
    sentence = headline(seen.summary)

    for name, document in documents(seen).items():
        assert shown(name, sentence) in document
