"""What is said when the warm-up ends."""

from trainperf.loop.report import first_answer
from trainperf.meters.fold import Reading


STEP = Reading(value=0.02, unit="s", n=50, low=0.019, high=0.021)
WAIT = Reading(value=0.25, unit="1", n=50)


def test_it_says_the_step_and_what_of_it_is_waiting() -> None:
    """Step time with its interval, and the data wait."""
    said = first_answer({"step_s": STEP, "data_wait_fraction": WAIT}, written=True)

    assert said is not None
    assert "step time 20.0 ms (95 % CI 19.0–21.0) so far, 25 % of it data wait" in said


def test_a_measurement_that_was_not_asked_for_is_not_mentioned() -> None:
    """`StepTimeMonitor` alone has no data wait to speak of, and `DataWaitMonitor` no step."""
    alone = first_answer({"step_s": STEP}, written=True)

    assert alone is not None
    assert "step time 20.0 ms (95 % CI 19.0–21.0) so far; full report" in alone
    assert first_answer({"data_wait_fraction": WAIT}, written=True) is None


def test_without_a_steady_state_nothing_is_said() -> None:
    """The first answer is about the steady state or there is none yet."""
    unsettled = {"step_s": Reading(value=None, unit="s"), "data_wait_fraction": WAIT}

    assert first_answer(unsettled, written=True) is None


def test_no_report_is_promised_where_none_can_come() -> None:
    """A run directory that could not be written."""
    said = first_answer({"step_s": STEP}, written=False)

    assert said == "trainperf: warm-up over, step time 20.0 ms (95 % CI 19.0–21.0) so far"
