"""Trials of the same training that were made in another run, near this one on disk."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainperf.analysis.run.directory import Run
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

_LEVELS = 3
"""Folders above a run in which trials are looked for."""

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


def trials_beside(run: Run, step_s: float | None) -> TrialsBeside | None:
    """The newest trials of the same training; `None` if there are none.

    The same training has the same model, data, settings, hardware and versions, as far as the
    headers of both runs tell, and steps that take as long.

    Args:
        run: That has none of its own.  Of one behind a URL no neighbours are looked at.
        step_s: What its steady step takes; `None` if it has none.
    """
    best: tuple[str, TrialsBeside] | None = None
    if isinstance(run.path, RemotePath):  # nobody tries anything there
        return None
    for path in _candidates(run.path.resolve()):
        try:
            other = Run.open(path)
            trials = read_document(Trials, path)
        except RunError:
            continue
        started_at = other.info.started_at
        if trials is None or not _same_training(run.info, other.info):
            continue
        if _as_fast(trials, step_s) and (best is None or started_at > best[0]):
            best = started_at, TrialsBeside(trials, path)
    return None if best is None else best[1]


def _candidates(run: Path) -> Iterator[Path]:
    """Directories of other runs with trials."""
    for folder in run.parents[:_LEVELS]:
        for place in _PLACES:
            for file in folder.glob(f"{place}/{Trials.file}"):
                if file.parent != run:
                    yield file.parent


def _same_training(run: RunInfo, other: RunInfo) -> bool:
    ours, theirs = _facts(run), _facts(other)
    return all(theirs[name] == value for name, value in ours.items() if name in theirs)


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


def _as_fast(trials: Trials, step_s: float | None) -> bool:
    if trials.baseline is None or not step_s:
        return False
    ratio = trials.baseline.step_s / step_s
    return 1 / _SAME_STEP <= ratio <= _SAME_STEP
