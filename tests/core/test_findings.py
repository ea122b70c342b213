"""Arithmetic that ranks findings: what a part brings to the whole, and what a change saves."""

import pytest

from trainperf.core.findings import Effort, Finding, ranked, saving


def finding(id_: str, gain: float | None, *, effort: Effort = "minutes") -> Finding:
    """A finding whose first change probably brings that."""
    return Finding(
        id=id_,
        title=id_,
        advice="Do it",
        evidence=(),
        action="do it",
        gain=gain,
        effort=effort,
    )


@pytest.mark.parametrize(("gain", "saved"), [(1.25, 0.2), (2.0, 0.5), (4.0, 0.75)])
def test_a_gain_saves_a_share_of_the_time_there_was(gain: float, saved: float) -> None:
    """Twice as fast saves half, never all of it."""
    assert saving(gain) == pytest.approx(saved)


def test_a_day_of_work_counts_against_minutes() -> None:
    """Half of the step in minutes before two thirds of it in days."""
    quick, long = finding("quick", 2.0), finding("long", 3.0, effort="days")

    assert [each.id for each in ranked([long, quick])] == ["quick", "long"]


@pytest.mark.parametrize(
    ("easy", "order"),
    [
        (1.12, ["long", "easy"]),  # a ninth, where two thirds are to be had
        (1.9, ["easy", "long"]),
    ],
)
def test_what_takes_most_of_the_fit_comes_before_what_is_easy(
    easy: float, order: list[str]
) -> None:
    """Unless that saves three quarters as much; by the return on work 1.12 times would be first."""
    some = [finding("easy", easy), finding("long", 2.6, effort="hours")]

    assert [each.id for each in ranked(some)] == order


def test_what_saves_less_than_a_tenth_is_after_what_saves_more_however_easy_it_is() -> None:
    """By the return on work it would be first."""
    some = [finding("easy", 1.09), finding("long", 1.4, effort="hours")]

    assert [each.id for each in ranked(some)] == ["long", "easy"]


def test_a_gain_that_nobody_knows_is_after_what_is_notable() -> None:
    """And before what saves less than a twentieth of the fit."""
    some = [finding("little", 1.02), finding("unknown", None), finding("notable", 1.2)]

    assert [each.id for each in ranked(some)] == ["notable", "unknown", "little"]
