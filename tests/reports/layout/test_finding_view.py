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


def test_at_most_and_usually_are_told_apart() -> None:
    """A bound is one thing, what the corpus gained another."""
    usual = msgspec.structs.replace(finding(0.5), expected_gain=(1.26, 1.94))

    assert gain(usual) == "at most 2.00× faster, usually 1.3–1.9× (corpus)"
    assert finding_view(usual).bound == "at most 2.00× faster"
