"""Rule about steps that are slower after profiling."""

from trainperf.analysis.rules.base import Evidence
from trainperf.core.findings import Finding, costs
from trainperf.core.formatting.units import duration, share, step_range


def slow_after_capture(evidence: Evidence) -> Finding | None:
    """The steady steps after a capture are slower than those before it.

    The medians of up to 50 steady steps on either side: from 5 % on, if the middle halves are
    apart.  The bound is the difference.

    Wrong where: the machine or the data changed at the same time as the capture ended.
    To confirm: a second run without captures (`trainperf compare`).
    """
    summary = evidence.summary
    slower = [capture for capture in summary.captures if capture.slower]
    if not slower:
        return None
    last = slower[-1]
    if last.before_s is None or last.after_s is None:
        return None
    lost = 1 - last.before_s / last.after_s
    return Finding(
        id="slow_after_capture",
        title=f"steps are {share(last.after_s / last.before_s - 1)} slower since a capture",
        advice="Measure again without the profiler",
        evidence=(
            f"{step_range(last.first_step, last.last_step)} profiled",
            f"{duration(last.before_s)} per step before, {duration(last.after_s)} after",
        ),
        action="set TEARDOWN_CUPTI=1, or restart the fit after profiling",
        **costs(lost, confidence="medium"),
        confirm="trainperf compare with a run without captures: equal",
    )
