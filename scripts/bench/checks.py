"""Check of what the overhead bench has timed: that ours did measure, and what it says it cost."""

from pathlib import Path

from scripts.bench.contenders import Contender
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.readings import OVERHEAD_S


def check(contender: Contender, scratch: Path, steps: int) -> None:
    """A monitor that switched itself off would be cheap."""
    if contender.is_ours and not contender.launcher:
        reported_us(scratch, steps)


def reported_us(scratch: Path, steps: int) -> float:
    """Microseconds a step that the run says it cost.

    Raises:
        RuntimeError: Not all steps were recorded, or a part of ours was switched off.
    """
    summary = summarize(Run.open(scratch))
    run = summary.run
    if run.steps < steps or run.faults:
        raise RuntimeError(
            f"{run.steps} of {steps} steps recorded, faults {run.faults}: the cost would be that "
            "of something else; fix the fault first"
        )
    return 1e6 * (summary.value(OVERHEAD_S) or 0.0)
