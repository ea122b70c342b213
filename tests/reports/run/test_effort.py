"""Return on effort in words: the table, and six answers for each finding."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from support.light import COMPUTE, write_audit
from support.runs import RankSpec, make_run_dir, make_steps, summary_of

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding, ranked
from trainperf.reports.run.effort import answers


SIX = ["gain", "effort", "return", "better", "ceiling", "how far"]


def planted(path: Path, *findings: Finding) -> Summary:
    """Steps of 50 ms, with those findings."""
    summary = summary_of(path, [RankSpec(steps=make_steps(200, data_wait=20, forward=30))])
    return msgspec.structs.replace(summary, findings=ranked(findings))


def finding(id_: str, fraction: float | None, *, urgent: bool = False) -> Finding:
    """A finding that takes hours, with Amdahl's bound; its change saves half of the share."""
    return Finding(
        id=id_,
        title=id_,
        advice="Do it",
        evidence=(),
        action="do it",
        fraction=fraction,
        gain=None if fraction is None else 1 / (1 - fraction / 2),
        gain_upper_bound=None if fraction is None else 1 / (1 - fraction),
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
    assert best["gain"] == "about 1.25× for the step: 50.0 ms → 40.0 ms, by the law of the step"
    assert best["effort"] == "hours, counted as 0.75 days"
    assert best["return"] == "saves 20 % of the fit, 27 % per day of work"
    assert best["better"] == "nothing returns more per day"
    assert best["ceiling"] == "at most 1.67× faster, 30.0 ms"
    assert best["how far"].startswith("this change saves 50 % of what the ceiling allows")
    assert other["better"] == "best (27 %) per day"


def test_what_is_not_known_is_said_not_to_be(tmp_path: Path) -> None:
    """No answer is left out, and none is made up."""
    unknown = six(planted(tmp_path, finding("unknown", None)), 0)

    assert list(unknown) == SIX
    for label in ("gain", "return", "better", "ceiling", "how far"):
        assert unknown[label].startswith("not known"), label
    assert "speed of light: not known without an audit" in unknown["how far"]


def test_an_audit_says_how_far_the_floor_is(tmp_path: Path) -> None:
    """Whatever is changed, no step is shorter than that."""
    run = make_run_dir(
        tmp_path / "gpt2" / "trainperf",
        [RankSpec(steps=make_steps(200, data_wait=20, forward=30))],
    )
    write_audit(run, COMPUTE)
    summary = summarize(Run.open(run))

    assert six(summary, 0)["how far"].endswith("the step takes 50× its speed of light, 1.00 ms")
