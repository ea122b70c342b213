"""A process as `trainperf try` starts it, and what it has tried."""

from pathlib import Path

import pytest

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.trials import TrialResult, Trials
from trainperf.core.launch_environment import VARIABLE, LaunchOptions, TrialLaunch


def launch_trials(
    monkeypatch: pytest.MonkeyPatch, place: Path, *only: str, minutes: float = 0.01
) -> None:
    """Have fits of this process try changes, into *place*; by default all that apply."""
    launch = LaunchOptions(dirpath=str(place), trials=TrialLaunch(minutes=minutes, only=only))
    monkeypatch.setenv(VARIABLE, launch.environment({})[VARIABLE])
    # On a busy machine steps would be unsteady to the end.
    monkeypatch.setattr("trainperf.trials.conductor.WARM_LOOKS", 2)


def trial_results(place: Path) -> dict[str, TrialResult]:
    """What was tried in the only run there, by name."""
    (file,) = place.rglob(Trials.file)
    document = read_document(Trials, file.parent)
    assert document.trying == ""
    return {trial.id: trial for trial in document.trials}
