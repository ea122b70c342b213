"""Start of the trials of a fit: what was asked for, and the probe that carries it out."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from trainperf.analysis.diagnosis.offers import selects
from trainperf.core.artifacts import read_document, write_document
from trainperf.core.artifacts.trials import Trials
from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import TrialLaunch
from trainperf.recording.guard import Guard
from trainperf.recording.process_objects import nothing
from trainperf.trials.builtin import builtin_trials
from trainperf.trials.conductor import Conductor
from trainperf.trials.probe import TrialsProbe
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


def demand_trials(trials: Sequence[object]) -> None:
    """Refuse what cannot be tried.

    Raises:
        ConfigError: A member is no trial, or two have the same name.
    """
    ids: list[str] = []
    for trial in trials:
        if not isinstance(trial, Trial):
            raise ConfigError(f"trials=[{trial!r}]: not a Trial; try Trial('name', on=…, off=…)")
        if trial.id in ids:
            raise ConfigError(f"trials: two are named {trial.id!r}; give one another name")
        ids.append(trial.id)


def trials_probe(
    training: Training,
    run: Path | None,
    guard: Guard,
    launch: TrialLaunch,
    own: Sequence[Trial] = (),
) -> TrialsProbe:
    """The probe that carries out trials, in a process that ends with the last of them.

    Args:
        training: That is tried.
        run: Directory of the run; `None` on ranks that write nothing.
        guard: Of the fit.
        launch: What the command was told.
        own: The user's: they come first, and take the place of built-in ones of their names.
    """
    tell = nothing if run is None else partial(write_document, run=run)
    before = None if launch.earlier is None else read_document(Trials, Path(launch.earlier))
    earlier = [] if before is None else [trial for trial in before.trials if not trial.parts]
    several = {trial.id: trial for trial in (*own, *builtin_trials(training), *own)}
    chosen = [
        trial
        for trial in several.values()
        if (not launch.only or selects(launch.only, trial.id))
        and not selects(launch.without, trial.id)
    ]
    conductor = Conductor(training, chosen, launch, tell, guard, earlier)
    # The training has no end of its own any more.
    guard.when_faulty(TrialsProbe.name, training.end)
    return TrialsProbe(conductor, training)
