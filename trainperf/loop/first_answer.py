"""What is said before the report?  One sentence, as soon as the warm-up is over."""

from collections.abc import Mapping

from trainperf.core.formatting.units import confidence_interval, duration, share
from trainperf.meters.fold import Reading


def first_answer(readings: Mapping[str, Reading], *, written: bool) -> str | None:
    """Step time and data wait in a sentence, so that nobody waits for the end of the fit.

    `None` while there is no steady state.  A reading that nobody asked for is not mentioned, and no
    report is promised where nothing is *written* that it could be made of.
    """
    step, waited = readings.get("step_s"), readings.get("data_wait_fraction")
    if step is None or step.value is None:
        return None
    interval = confidence_interval(step.value, step.low, step.high)
    waiting = ""
    if waited is not None and waited.value is not None:
        waiting = f", {share(waited.value)} of it data wait"
    later = "; full report when the fit ends, or now with `trainperf report` on the run directory"
    said = f"trainperf: warm-up over, step time {duration(step.value)}{interval} so far{waiting}"
    return said + (later if written else "")
