"""What a finding is worth, in words."""

import msgspec
import pytest

from trainperf.core.findings import Effort, Finding
from trainperf.reports.layout.finding_view import (
    effort,
    finding_view,
    gain,
    return_per_hour,
    to_act_on,
)


def finding(fraction: float | None, work: Effort = "minutes", *, urgent: bool = False) -> Finding:
    """One that takes that share."""
    bound = None if fraction is None else 1 / (1 - fraction)
    return Finding(
        id="x",
        title="t",
        advice="a",
        evidence=(),
        action="c",
        fraction=fraction,
        gain_upper_bound=bound,
        effort=work,
        urgent=urgent,
    )


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ("minutes", "minutes; saves up to 48 % of the step per hour of work"),
        ("hours", "hours; saves up to 8.0 % of the step per hour of work"),
        ("days", "days; saves up to 2.0 % of the step per hour of work"),
    ],
)
def test_the_same_gain_is_worth_less_the_longer_it_takes(work: Effort, said: str) -> None:
    """By round figures."""
    assert effort(finding(0.48, work)) == said


def test_a_gain_that_is_not_known_promises_nothing() -> None:
    """Neither a factor nor a return."""
    assert return_per_hour(finding(None)) is None
    assert (gain(finding(None)), effort(finding(None))) == ("", "minutes")


def test_a_finding_that_gains_nothing_is_nothing_to_act_on() -> None:
    """It says what to leave alone; what is urgent is acted on, whatever it gains."""
    leave, act, urgent = finding(0.0), finding(0.2), finding(0.0, urgent=True)

    assert to_act_on([leave, act, urgent]) == [act, urgent]
    assert gain(leave) == ""


@pytest.mark.parametrize(
    ("bound", "expected", "text"),
    [
        (2.0, (1.26, 1.94), "at most 2.00× faster, usually 1.26–1.94× (corpus)"),
        (1.06, (1.04, 1.06), "at most 1.06× faster, usually 1.04–1.06× (corpus)"),
        (1.14, (1.138, 1.14), "at most 1.14× faster, usually about 1.14× (corpus)"),
        (150.0, (2.7, 100.0), "at most 150× faster, usually 2.70–100× (corpus)"),
    ],
)
def test_at_most_and_usually_are_told_apart_in_the_same_digits(
    bound: float, expected: tuple[float, float], text: str
) -> None:
    """A bound is one thing, what the corpus gained another, and never the larger."""
    usual = msgspec.structs.replace(finding(0.5), gain_upper_bound=bound, expected_gain=expected)

    assert gain(usual) == text
    assert finding_view(usual).bound == text.split(",", maxsplit=1)[0]
