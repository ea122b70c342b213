"""Return on effort in words: the table, and six answers for each finding."""

from collections.abc import Mapping

from trainperf.core.findings import Finding, ranked
from trainperf.reports.run.effort import answers


SIX = ["gain", "effort", "return", "better", "ceiling", "how far"]


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


def six(place: int, *findings: Finding) -> Mapping[str, str]:
    """The answers for the finding at that place."""
    every = ranked(findings)
    return {row.label: row.text for row in answers(every[place], every)}


def test_each_finding_answers_the_six_questions_in_order() -> None:
    """How much, how long, what return, anything better, where is the ceiling, how far is it."""
    best, other = (six(place, finding("best", 0.4), finding("other", 0.2)) for place in (0, 1))

    assert best == {
        "gain": "about 1.25×, at most 1.67×",
        "effort": "hours, counted as 0.75 days",
        "return": "saves 20 % of the fit, 27 % per day of work",
        "better": "nothing returns more per day",
        "ceiling": "at most 1.67× faster",
        "how far": "this change saves 50 % of what the ceiling allows",
    }
    assert other["better"] == "best (27 %) per day"


def test_what_is_not_known_is_said_not_to_be() -> None:
    """No answer is left out, and none is made up."""
    unknown = six(0, finding("unknown", None, urgent=True))

    assert list(unknown) == SIX
    assert unknown.pop("gain") == "not known, and first all the same: it is urgent"
    assert unknown.pop("effort").startswith("hours")
    assert set(unknown.values()) == {"not known"}
