"""What is said before the report?  One sentence, as soon as the warm-up is over."""

from collections.abc import Mapping

from trainperf.meters.fold import Reading
from trainperf.units import bracket, duration, share


def first_answer(readings: Mapping[str, Reading]) -> str | None:
    """Step time and data wait in a sentence, so that nobody waits for the end of the fit.

    `None` while there is no steady state.
    """
    step, waited = readings["step_s"], readings["data_wait_fraction"]
    if step.value is None:
        return None
    sure = bracket(step.value, step.low, step.high)
    waiting = f", {share(waited.value)} of it waiting for data" if waited.value is not None else ""
    return (
        f"trainperf: warm-up over, {duration(step.value)} a step{sure}{waiting}; the full report "
        "comes when the fit ends, or now with `trainperf report` on the run directory"
    )
