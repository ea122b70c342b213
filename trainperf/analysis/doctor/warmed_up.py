"""Check that there are enough steady steps, timed by valid clocks."""

from trainperf.analysis.doctor.base import Case, Outcome, failed, passed, unknown
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, plural
from trainperf.core.readings import (
    ALLREDUCE_TAIL_S,
    DATA_STALL_FRACTION,
    H2D_S,
    HOST_BOUND_FRACTION,
    STEP_IQR_S,
    STEP_S,
)


EVENTS = (DATA_STALL_FRACTION, H2D_S, HOST_BOUND_FRACTION, ALLREDUCE_TAIL_S)
"""Readings that come from timing events of the device."""


def warmed_up(case: Case) -> Outcome:
    """Timings are warmed up and synchronised or event-based.

    Fails with fewer than 20 steady steps, and on a GPU when no timing event was read.
    """
    summary = case.summary
    run = summary.run
    step_s = summary.value(STEP_S)
    steady = f"{plural(run.steady_steps, 'steady step')} of {run.steps:,}"
    if step_s is None or run.steady_steps < LIMITS.steps:
        more = f"train on: {LIMITS.steps} steady steps are the least to judge by"
        return unknown(steady, more) if run.state == "running" else failed(more, steady)
    spread_s = summary.value(STEP_IQR_S)
    spread = "" if spread_s is None else f", middle half within {duration(spread_s)}"
    clock = _clock(summary)
    if clock is None:
        return failed(
            f"{case.loop.everything}: its events time the device without waiting for it",
            f"no timing event was read on {run.device}: only the host's clock is known",
        )
    return passed(f"{duration(step_s)} per step over {steady}{spread}", clock)


def _clock(summary: Summary) -> str | None:
    """What the times stand on; `None` if nothing tells when the device is done."""
    if summary.run.device == "cpu":
        return "on a CPU an operator has run when it returns: the host's clock is exact"
    timed = [name for name in EVENTS if summary.value(name) is not None]
    return f"device times from timing events ({', '.join(timed)})" if timed else None
