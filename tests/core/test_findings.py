"""Arithmetic that ranks findings: what a part brings to the whole, and what a change saves."""

import pytest

from trainperf.core.findings import Effort, Finding, Scope, ranked, saving


def finding(
    id_: str, gain: float | None, *, scope: Scope = "step", effort: Effort = "minutes"
) -> Finding:
    """A finding whose first change probably brings that."""
    return Finding(
        id=id_,
        title=id_,
        advice="Do it",
        evidence=(),
        action="do it",
        scope=scope,
        gain=gain,
        effort=effort,
    )


@pytest.mark.parametrize(("gain", "saved"), [(1.25, 0.2), (2.0, 0.5), (4.0, 0.75)])
def test_a_gain_saves_a_share_of_the_time_there_was(gain: float, saved: float) -> None:
    """Twice as fast saves half, never all of it."""
    assert saving(gain) == pytest.approx(saved)


def test_a_share_of_the_fit_is_all_of_it_and_one_of_a_step_is_not() -> None:
    """Where steps take half of a fit, a fifth of it is more than a quarter of each step."""
    of_step, of_fit = finding("step", 4 / 3), finding("fit", 5 / 4, scope="fit")

    assert [each.id for each in ranked([of_step, of_fit], 0.5)] == ["fit", "step"]
    assert [each.id for each in ranked([of_step, of_fit], 1.0)] == ["step", "fit"]


def test_a_day_of_work_counts_against_minutes() -> None:
    """Half of the step in minutes before two thirds of it in days."""
    quick, long = finding("quick", 2.0), finding("long", 3.0, effort="days")

    assert [each.id for each in ranked([long, quick])] == ["quick", "long"]


def test_a_gain_that_nobody_knows_is_after_what_is_notable() -> None:
    """And before what saves less than a twentieth of the fit."""
    some = [finding("little", 1.02), finding("unknown", None), finding("notable", 1.2)]

    assert [each.id for each in ranked(some)] == ["notable", "unknown", "little"]
