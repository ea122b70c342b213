"""Restarts of a job: how often, what was lost between two attempts, and what was done twice.

An attempt that resumes from a checkpoint says at which step of the job it goes on; steps after it
that the attempt before had done are done again.
"""

import msgspec

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.record_file import end_of
from trainperf.core.phases import Gap


_STEPS = "steps"


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """What restarts cost a job, on its lowest rank."""

    number: int
    without_training_s: float
    """From the last line of an attempt to the start of the next, all of them together."""
    lost_s: float
    """That, the startups of all attempts but the first, and the steps that were done twice."""
    again_steps: int | None
    """Steps that were done twice; `None` where an attempt does not say where it went on."""


def restarts(run: Run, journal: Journal) -> Restarts | None:
    """`None` where there was none, or only a window of the run is read."""
    number = len(run.attempts) - 1
    if number < 1 or run.window:
        return None
    again = _again(run)
    without_s = journal.gap_ns.get(Gap.RESTART.label, 0) / 1e9
    startups_s = (
        sum(spent_ns for _, spent_ns in journal.pauses.get(Gap.STARTUP.label, ())[1:]) / 1e9
    )
    step_s = sum(journal.phase_ns) / 1e9 / max(1, journal.steps)
    return Restarts(
        number=number,
        without_training_s=without_s,
        lost_s=without_s + startups_s + (again or 0) * step_s,
        again_steps=again,
    )


def _again(run: Run) -> int | None:
    """Steps of the job that two attempts did, by where each began."""
    again, reached = 0, 0
    for place, files in enumerate(run.attempts):
        begins = files[0].info.totals.get(_STEPS)
        if begins is None and place:
            return None
        begins = begins or 0
        if place:
            again += max(0, reached - begins)
        reached = begins + end_of(files[0]).step + 1
    return again
