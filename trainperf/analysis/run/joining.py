"""Joining of the run directories that one job wrote, one after each restart.

Each becomes an attempt of one run, in the order in which they began: steps are numbered on, and the
time between two is a `restart` gap.
"""

from collections.abc import Sequence
from dataclasses import replace

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.window import numbered_on
from trainperf.core.errors import RunError
from trainperf.core.window import RunWindow


def joined(runs: Sequence[Run], window: RunWindow | None = None) -> Run:
    """One run of several directories; documents, such as an audit, are those of the last.

    Args:
        runs: In any order.
        window: What is read of all of it.

    Raises:
        RunError: They are not of one job, or there is no step in the window.
    """
    ordered = sorted(runs, key=lambda run: run.attempts[0][0].info.started_at)
    _refuse_strangers(ordered)
    files = [files for run in ordered for files in run.attempts]
    attempts = numbered_on(
        tuple(
            tuple(replace(file, attempt=number) for file in each)
            for number, each in enumerate(files)
        )
    )
    warnings = tuple(dict.fromkeys(warning for run in ordered for warning in run.warnings))
    whole = replace(ordered[-1], attempts=attempts, warnings=warnings)
    return whole.within(window or RunWindow())


def _refuse_strangers(runs: Sequence[Run]) -> None:
    """Directories of one job: one model, and none of them twice."""
    first = runs[0]
    places = [str(run.path.resolve()) for run in runs]
    for run, place in zip(runs, places, strict=True):
        if places.count(place) > 1:
            raise RunError(f"{run.path}: given twice; name each directory once")
        if run.info.config.get("parameters") != first.info.config.get("parameters"):
            raise RunError(
                f"{run.path}: another model than in {first.path}; give the directories of one job"
            )
