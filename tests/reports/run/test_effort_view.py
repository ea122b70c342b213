"""Return on effort in words: the table, and six answers for each finding."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from support.light import COMPUTE, write_audit
from support.runs import RankSpec, make_info, make_run_dir, make_steps, summary_of
from trainperf.analysis.effort.decisions import decisions

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding, amdahl
from trainperf.reports.html.run import load_page_data
from trainperf.reports.html.run import render as page
from trainperf.reports.layout.finding_view import EFFORT
from trainperf.reports.run import markdown
from trainperf.reports.run.effort_view import (
    BETTER,
    CEILING,
    FAR,
    GAIN,
    RETURN,
    TITLE,
    answers,
    of_effort,
)
from trainperf.reports.run.text import full_lines


SIX = [GAIN, EFFORT, RETURN, BETTER, CEILING, FAR]


def planted(path: Path, *findings: Finding) -> Summary:
    """Steps of 50 ms, with those findings."""
    summary = summary_of(path, [RankSpec(steps=make_steps(200, data_wait=20, forward=30))])
    found = msgspec.structs.replace(summary, findings=findings)
    return msgspec.structs.replace(found, decisions=decisions(found))


def finding(id_: str, fraction: float | None, *, urgent: bool = False) -> Finding:
    """A finding that takes hours, with Amdahl's bound."""
    return Finding(
        id=id_,
        title=id_,
        advice="Do it",
        evidence=(),
        action="do it",
        fraction=fraction,
        gain_upper_bound=None if fraction is None else amdahl(fraction),
        effort="hours",
        urgent=urgent,
    )


def six(summary: Summary, place: int) -> Mapping[str, str]:
    """The answers for the finding at that place."""
    return {row.label: row.text for row in answers(summary, summary.findings[place])}


def test_each_finding_answers_the_six_questions_in_order(tmp_path: Path) -> None:
    """How much, how long, what return, anything better, where is the ceiling, how far is it."""
    summary = planted(tmp_path, finding("best", 0.4), finding("other", 0.2))
    best, other = six(summary, 0), six(summary, 1)

    assert list(best) == SIX
    assert best[GAIN].startswith("believed 1.25× for the step")
    assert best[GAIN].endswith("50.0 ms → 40.0 ms")
    assert best[EFFORT] == "hours, counted as 0.75 days"
    assert best[RETURN] == "saves 20 % of the fit, 27 % per day of work"
    assert best[BETTER] == "nothing returns more per day"
    assert best[CEILING] == "at most 1.67× faster, 30.0 ms"
    assert best[FAR].startswith("this change saves 50 % of what the ceiling allows")
    assert other[BETTER] == "best (27 %) per day"


def test_what_is_not_known_is_said_not_to_be(tmp_path: Path) -> None:
    """No answer is left out, and none is made up."""
    unknown = six(planted(tmp_path, finding("unknown", None)), 0)

    assert list(unknown) == SIX
    for label in (GAIN, RETURN, BETTER, CEILING, FAR):
        assert unknown[label].startswith("not known"), label
    assert "speed of light: not known without an audit" in unknown[FAR]


def test_an_audit_says_how_far_the_floor_is(tmp_path: Path) -> None:
    """Whatever is changed, no step is shorter than that."""
    run = make_run_dir(
        tmp_path / "gpt2" / "trainperf",
        [RankSpec(steps=make_steps(200, data_wait=20, forward=30))],
    )
    write_audit(run, COMPUTE)
    summary = summarize(Run.open(run))

    assert six(summary, 0)[FAR].endswith("the step takes 50× its speed of light, 1.00 ms")


def test_the_table_has_every_decision_and_says_how_to_edit_it(tmp_path: Path) -> None:
    """An urgent one without a share has dashes."""
    summary = planted(tmp_path, finding("best", 0.4), finding("leak", None, urgent=True))
    (table,) = of_effort(summary)

    assert [row[0] for row in table.rows] == ["leak", "best"]
    assert table.rows[0][-1] == "urgent: first"
    assert table.rows[1] == ("best", "40 %", "2.00×", "0.75", "1.25×", "1.67×", "27 %", "a guess")
    assert any("--write-effort" in note for note in table.notes)
    assert of_effort(planted(tmp_path / "none")) == []


def test_every_format_has_the_table_and_the_answers(tmp_path: Path) -> None:
    """Terminal, Markdown and HTML."""
    info = make_info(config={"num_workers": 0})
    steps = make_steps(200, data_wait=20, forward=30)
    run = Run.open(make_run_dir(tmp_path / "gpt2", [RankSpec(steps=steps, info=info)]))
    data = load_page_data(run, now_s=0.0)
    summary = data.evidence.summary
    documents = (
        "\n".join(line.plain for line in full_lines(summary, 100)),
        markdown.render(summary),
        page(data),
    )

    for document in documents:
        assert TITLE in document
        assert "Amdahl" in document
        assert RETURN in document
        assert FAR in document
