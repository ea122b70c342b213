"""A finding in words: five lines, and one gain."""

import msgspec
import pytest

from trainperf.core.findings import ChangeGain, Effort, Finding, MeasuredGain
from trainperf.reports.layout.finding_view import (
    CONFIRM,
    DO,
    GAIN,
    MOST_CHANGES,
    finding_view,
    first_rows,
    gain,
    to_act_on,
)
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.layout.text import text_lines


def finding(fraction: float | None, work: Effort = "minutes", *, urgent: bool = False) -> Finding:
    """One that takes that share, half of which its change saves."""
    bound = None if fraction is None else 1 / (1 - fraction)
    return Finding(
        id="x",
        title="t",
        advice="a",
        evidence=(),
        action="c",
        fraction=fraction,
        gain=None if not fraction else 1 / (1 - fraction / 2),
        gain_upper_bound=bound,
        effort=work,
        urgent=urgent,
    )


def told(about: float | None, most: float | None, **more: object) -> Finding:
    """One that gains that much."""
    return msgspec.structs.replace(finding(0.5), gain=about, gain_upper_bound=most, **more)


def tried(verdict: str, speedup: float) -> MeasuredGain:
    """What a trial of 5 % doubt found."""
    return MeasuredGain(
        trial="workers_2", verdict=verdict, speedup=speedup, low=speedup - 0.05, high=speedup + 0.05
    )


def change(number: int, about: float | None = None, **more: object) -> ChangeGain:
    """The change of that number."""
    return ChangeGain(
        id=f"c{number}", advice="a", action=f"do {number}", effort="minutes", about=about, **more
    )


def test_a_gain_that_is_not_known_promises_nothing() -> None:
    """No factor; what is done is to be tried."""
    unknown = finding(None)

    assert gain(unknown) == ""
    assert finding_view(unknown).headline == "t"
    assert finding_view(unknown).text(GAIN) == "not known before it is tried"


def test_a_finding_that_gains_nothing_is_nothing_to_act_on() -> None:
    """It says what to leave alone; what is urgent is acted on, whatever it gains."""
    leave, act, urgent = finding(0.0), finding(0.2), finding(0.0, urgent=True)

    assert to_act_on([leave, act, urgent]) == [act, urgent]
    assert finding_view(leave).text(GAIN) == ""


def test_what_was_tried_in_vain_is_nothing_to_act_on() -> None:
    """Its share of the step is not what the change brings."""
    vain = told(1.29, 1.53, measured_gain=tried("slower", 0.9))

    assert to_act_on([vain]) == []
    assert first_rows([vain]) == ()


@pytest.mark.parametrize(
    ("about", "most", "text"),
    [
        (1.29, 1.53, "about 1.29×, at most 1.53×"),
        (1.29, None, "about 1.29×"),
        (None, 1.53, "at most 1.53×"),
        (1.14, 1.141, "about 1.14×"),
        (100.0, 150.0, "about 100×, at most 150×"),
        (1.0, 1.53, ""),
        (None, None, ""),
    ],
)
def test_a_gain_has_its_bound_where_that_is_another_number(
    about: float | None, most: float | None, text: str
) -> None:
    """One gain for each finding, and never one below 1."""
    known = told(about, most)

    assert gain(known) == text
    assert finding_view(known).headline == (f"t: {text}" if text else "t")


def test_a_gain_of_the_fit_says_so() -> None:
    """It is no share of a step."""
    assert gain(told(1.2, 1.3, scope="fit")) == "the fit about 1.20×, at most 1.30×"


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        ("faster", "1.38× [1.33–1.43], tried"),
        ("undecided", "1.38× [1.33–1.43], tried, undecided"),
        ("loss differs", "1.38× [1.33–1.43], tried, loss differs"),
    ],
)
def test_what_was_measured_takes_the_place_of_the_law(verdict: str, text: str) -> None:
    """With its interval, and with a word where it is no plain yes or no."""
    assert gain(told(1.38, 2.0, measured_gain=tried(verdict, 1.38))) == text


def test_a_finding_has_five_lines_in_their_order() -> None:
    """What and where, evidence, do, gain, confirm."""
    view = finding_view(
        told(
            1.29,
            1.53,
            evidence=("20 ms a step", "of 50"),
            where="train.py:3",
            called_at="main.py:9",
            confirm="it falls",
            confidence="medium",
            effort="hours",
            changes=(change(1, costs="memory"),),
        )
    )
    title, *rest = (line.plain for line in text_lines([view], 92))

    assert title == "  1. t (train.py:3, called at main.py:9)"
    assert [line.split(maxsplit=1) for line in rest] == [
        ["20", "ms a step; of 50"],
        [DO, "c"],
        [GAIN, "about 1.29×, at most 1.53×; takes hours; costs memory; medium confidence"],
        [CONFIRM, "it falls"],
    ]
    assert len(as_markdown([view]).splitlines()) == 5


def test_other_changes_are_named_with_what_they_bring() -> None:
    """After the first, at most so many; one of which nothing tells promises nothing."""
    changes = (change(1, 1.5), change(2, 1.4), change(3), change(4, 1.1))
    done = finding_view(told(1.5, 2.0, action="do 1", changes=changes)).text(DO)

    assert MOST_CHANGES == 3
    assert done == "do 1; or do 2 (about 1.40×); or do 3"


def test_names_from_a_run_stay_on_one_line() -> None:
    """And cannot steer a terminal."""
    hostile = told(1.2, 1.3, evidence=("a\x1b[31m\nb",), where="x\n1. y.py:3", action="do\rit")
    view = finding_view(hostile)

    texts = (view.title, *view.evidence, *(row.text for row in view.rows))
    assert not set("".join(texts)) & set("\x1b\n\r")
