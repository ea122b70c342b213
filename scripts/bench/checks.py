"""Check of what the overhead bench has timed: that ours did measure, and what it says it cost."""

from pathlib import Path

from scripts.bench.contenders import Contender
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize


def check(contender: Contender, scratch: Path, steps: int) -> None:
    """A monitor that switched itself off would be cheap."""
    if not contender.is_ours:
        return
    run = summarize(Run.open(scratch)).run
    if run.steps != steps or run.faults:
        raise RuntimeError(
            f"{run.steps} of {steps} steps recorded, faults {run.faults}: the cost would be that "
            "of something else; fix the fault first"
        )
