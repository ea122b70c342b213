"""Trials of the same training that were made in another run, near this one on disk."""

from contextlib import suppress
from pathlib import Path

from trainperf.analysis.run.directory import LEVELS, Run
from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.trials import Trials
from trainperf.core.errors import RunError
from trainperf.core.loop_kind import STEP_CLOCK
from trainperf.core.paths import is_remote
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


def trials_beside(run: Run, step_s: float | None) -> tuple[Trials, Path] | None:
    """The newest trials of the same training, and their run; `None` if there are none.

    The same training has the same model, data, settings, hardware and versions, as far as the
    headers of both runs tell, and steps that take as long.

    Args:
        run: That has none of its own.  Of one behind a URL no neighbours are looked at.
        step_s: What its steady step takes; `None` if it has none.
    """
    if is_remote(run.path) or not step_s:  # nobody tries anything there
        return None
    path = run.path.resolve()
    beside = {
        file.parent
        for folder in path.parents[:LEVELS]
        for place in _PLACES
        for file in folder.glob(f"{place}/{Trials.file}")
    }
    begun: dict[str, tuple[Trials, Path]] = {}
    for place in sorted(beside - {path}, reverse=True):
        with suppress(RunError):
            other, trials = Run.open(place).info, read_document(Trials, place)
            if trials is not None and _are_of(other, trials, run.info, step_s):
                begun[other.started_at] = trials, place
    return begun[max(begun)] if begun else None


def _are_of(other: RunInfo, trials: Trials, info: RunInfo, step_s: float) -> bool:
    """Whether trials of another run are of the same training."""
    theirs, before = _facts(other), trials.baseline
    same = all(theirs.get(name, value) == value for name, value in _facts(info).items())
    slower = before.step_s / step_s if before else 0.0
    return same and 1 / _SAME_STEP <= slower <= _SAME_STEP


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
