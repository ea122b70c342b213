"""Trials of the same training that were made in another run, near this one on disk."""

from dataclasses import dataclass
from pathlib import Path

from trainperf.analysis.run.directory import LEVELS, Run
from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.trials import Trials
from trainperf.core.errors import RunError
from trainperf.core.loop_kind import STEP_CLOCK
from trainperf.core.places import RemotePath
from trainperf.core.run_directory import NAME
from trainperf.core.steps.records import RunInfo, Scalar


NO_CHANGE = frozenset(
    {
        "seed",
        "max_steps",
        "max_epochs",
        "log_every_n_steps",
        "scheduler_steps",
        "updates",
        "micro_batches",
        "host_cpus",
        "cpu_mask",
        "host",
        STEP_CLOCK,
    }
)
"""Facts that change neither the work of a step nor its speed."""

_PLACES = (f"{NAME}*", f"try*/{NAME}*", f"runs/try*/{NAME}*")
"""In each of them: next to it, and where `trainperf try` writes by default."""

_SAME_STEP = 1.25
"""Ratio of the step times up to which nothing that is no setting, e.g. the dataset's code, was
changed between the two."""


@dataclass(frozen=True, slots=True)
class TrialsBeside:
    """What another run tried."""

    trials: Trials
    run: Path
    started_at: str


def trials_beside(run: Run, step_s: float | None) -> TrialsBeside | None:
    """The newest trials of the same training; `None` if there are none.

    The same training has the same model, data, settings, hardware and versions, as far as the
    headers of both runs tell, and steps that take as long.

    Args:
        run: That has none of its own.  Of one behind a URL no neighbours are looked at.
        step_s: What its steady step takes; `None` if it has none.
    """
    if isinstance(run.path, RemotePath) or not step_s:  # nobody tries anything there
        return None
    path = run.path.resolve()
    beside = {
        file.parent
        for folder in path.parents[:LEVELS]
        for place in _PLACES
        for file in folder.glob(f"{place}/{Trials.file}")
    }
    neighbours = [_tried(other, run.info, step_s) for other in sorted(beside - {path})]
    return max(filter(None, neighbours), key=lambda each: each.started_at, default=None)


def _tried(path: Path, info: RunInfo, step_s: float) -> TrialsBeside | None:
    try:
        other, trials = Run.open(path).info, read_document(Trials, path)
    except RunError:
        return None
    if trials is None or trials.baseline is None:
        return None
    theirs = _facts(other)
    same = all(theirs.get(name, value) == value for name, value in _facts(info).items())
    as_fast = 1 / _SAME_STEP <= trials.baseline.step_s / step_s <= _SAME_STEP
    return TrialsBeside(trials, path, other.started_at) if same and as_fast else None


def _facts(info: RunInfo) -> dict[str, Scalar]:
    """Everything that decides how fast a step is, where it is known."""
    facts: dict[str, Scalar] = {
        **info.config,
        **info.hardware,
        **info.software,
        "device": info.device,
        "world_size": info.world_size,
    }
    return {
        name: value
        for name, value in facts.items()
        if value is not None and name not in NO_CHANGE and name != "trainperf"
    }
