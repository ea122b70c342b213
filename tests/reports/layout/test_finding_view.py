"""What a finding is worth, in words."""

import msgspec
import pytest

from trainperf.core.findings import Effort, Finding
from trainperf.reports.layout.finding_view import (
    EFFORT,
    FindingRow,
    finding_view,
    gain,
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


def test_answers_of_a_run_take_the_place_of_the_label_of_effort() -> None:
    """Where there are none, as for a trace, the label stands alone."""
    alone = finding_view(finding(0.48, "hours"))
    answered = finding_view(finding(0.48, "hours"), [FindingRow(EFFORT, "hours, 0.75 days")])

    assert alone.text(EFFORT) == "hours"
    assert answered.text(EFFORT) == "hours, 0.75 days"


def test_a_gain_that_is_not_known_promises_nothing() -> None:
    """No factor."""
    assert gain(finding(None)) == ""


def test_a_finding_that_gains_nothing_is_nothing_to_act_on() -> None:
    """It says what to leave alone; what is urgent is acted on, whatever it gains."""
    leave, act, urgent = finding(0.0), finding(0.2), finding(0.0, urgent=True)

    assert to_act_on([leave, act, urgent]) == [act, urgent]
    assert gain(leave) == ""


@pytest.mark.parametrize(
    ("bound", "expected", "text"),
    [
        (2.0, (1.26, 1.94), "at most 2.00× faster, usually 1.26–1.94× (3 scripts)"),
        (1.06, (1.04, 1.06), "at most 1.06× faster, usually 1.04–1.06× (3 scripts)"),
        (1.14, (1.138, 1.14), "at most 1.14× faster, usually about 1.14× (3 scripts)"),
        (150.0, (2.7, 100.0), "at most 150× faster, usually 2.70–100× (3 scripts)"),
    ],
)
def test_at_most_and_usually_are_told_apart_in_the_same_digits(
    bound: float, expected: tuple[float, float], text: str
) -> None:
    """A bound is one thing, what the corpus gained another, and never the larger."""
    usual = msgspec.structs.replace(
        finding(0.5), gain_upper_bound=bound, expected_gain=expected, expected_from=3
    )

    assert gain(usual) == text
    assert finding_view(usual).bound == text.split(",", maxsplit=1)[0]
