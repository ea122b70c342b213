"""What is said when the warm-up ends."""

import pytest

from trainperf.loop.report import first_answer
from trainperf.meters.fold import Reading


STEP = Reading(value=0.02, unit="s", n=50, low=0.019, high=0.021)
WAIT = Reading(value=0.25, unit="1", n=50)
UNSETTLED = Reading(value=None, unit="s")
SAID = "trainperf: warm-up over, step time 20.0 ms (95 % CI 19.0–21.0) so far"
REPORT = "; full report when the fit ends, or now with `trainperf report` on the run directory"


@pytest.mark.parametrize(
    ("readings", "written", "said"),
    [
        (
            {"step_s": STEP, "data_wait_fraction": WAIT},
            True,
            f"{SAID}, 25 % of it data wait{REPORT}",
        ),
        ({"step_s": STEP}, True, SAID + REPORT),
        ({"step_s": STEP}, False, SAID),
        ({"data_wait_fraction": WAIT}, True, None),
        ({"step_s": UNSETTLED, "data_wait_fraction": WAIT}, True, None),
    ],
    ids=["both", "step time alone", "no run directory", "data wait alone", "no steady state"],
)
def test_it_says_the_step_and_what_of_it_is_waiting(
    readings: dict[str, Reading], said: str | None, *, written: bool
) -> None:
    """What was not asked for is not mentioned, and no report is promised where none can come."""
    assert first_answer(readings, written=written) == said
