"""One fact, one wording: a finding reads the same in every renderer."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest
from support.runs import RankSpec, make_run_dir, make_steps
from trainperf.analysis.effort.decisions import decisions

from trainperf.analysis.run.directory import Run
from trainperf.core.findings import Finding
from trainperf.core.formatting.escape import markdown as escaped
from trainperf.reports.html.run import PageData, load_page_data
from trainperf.reports.html.run import render as page
from trainperf.reports.layout.finding_view import (
    CONFIDENCE,
    CONFIRM,
    EFFORT,
    NEXT,
    WHERE,
    finding_view,
)
from trainperf.reports.run import markdown
from trainperf.reports.run.effort_view import (
    BETTER,
    CEILING,
    FAR,
    GAIN,
    RETURN,
    answers,
)
from trainperf.reports.run.run_view import headline, run_view
from trainperf.reports.run.text import full_lines, lines


LABELS = [NEXT, WHERE, GAIN, EFFORT, RETURN, BETTER, CEILING, FAR, CONFIDENCE, CONFIRM]
FINDINGS = tuple(
    Finding(
        id=f"finding_{number}",
        title=f"{number} % of the step is lost somewhere",
        advice=f"Mend part {number}",
        evidence=(f"{number} ms per step", f"{number} calls of <f>"),
        action=f"mend(part_{number})",
        fraction=number / 100,
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
    summary = msgspec.structs.replace(read.evidence.summary, findings=FINDINGS)
    summary = msgspec.structs.replace(summary, decisions=decisions(summary))
    return replace(read, evidence=replace(read.evidence, summary=summary))


def documents(seen: PageData) -> dict[str, str]:
    """What a reader sees in each renderer that has room for everything, on one line."""
    summary = seen.evidence.summary
    full = [*lines(summary, 110), *full_lines(summary, 110)]
    shown = {
        "full text": " ".join(line.plain for line in full),
        "markdown": markdown.render(summary),
        "html": html.unescape(re.sub(r"<[^>]*>", " ", page(seen))),
        "tab": " ".join(strings(msgspec.to_builtins(run_view(summary)))),
    }
    return {name: re.sub(r"\s+", " ", text) for name, text in shown.items()}


def strings(value: object) -> Iterator[str]:
    """All texts of a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from strings(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from strings(part)


def test_every_renderer_shows_every_line_of_every_finding_in_the_same_words(seen: PageData) -> None:
    """Title, gain, evidence, and the labelled rows, in this order."""
    for name, document in documents(seen).items():
        place = 0
        for finding in FINDINGS:
            view = finding_view(finding, answers(seen.evidence.summary, finding))
            assert [row.label for row in view.rows] == LABELS
            place = document.rindex(shown(name, view.title))
            for text in (
                view.gain,
                *view.evidence,
                *(part for row in view.rows for part in (row.label, row.text)),
            ):
                place = document.index(shown(name, text), place)


def shown(name: str, text: str) -> str:
    """*text* as the source of that document has it."""
    return escaped(text) if name == "markdown" else text


def test_every_renderer_begins_with_the_same_sentence(seen: PageData) -> None:
    """The headline has one owner."""
    sentence = headline(seen.evidence.summary)

    for name, document in documents(seen).items():
        assert shown(name, sentence) in document


def test_the_short_report_says_what_to_do_first_in_the_same_words(seen: PageData) -> None:
    """The action and its place; of the other findings the title and the gain."""
    report = [line.plain.strip() for line in lines(seen.evidence.summary, 110)]
    first, *others = map(finding_view, FINDINGS)

    assert f"{NEXT}  {first.text(NEXT)}" in report
    assert f"{WHERE} {first.text(WHERE)}" in report
    for view in others:
        assert any(line.startswith(f"also  {view.headline}") for line in report)


def test_the_tab_script_takes_its_labels_from_the_server() -> None:
    """It lays out rows; only those with code in them are named there."""
    script = (files("trainperf.tensorboard") / "static" / "panels.js").read_text(encoding="utf-8")

    assert f'new Set(["{NEXT}", "{WHERE}"])' in script
    for label in (EFFORT, CONFIDENCE, CONFIRM):
        assert f'"{label}' not in script
