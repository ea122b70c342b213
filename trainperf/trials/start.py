"""Start of the trials of a fit: what was asked for, and the probe that carries it out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainperf.analysis.diagnosis.offers import selects
from trainperf.core.artifacts import read_document, write_document
from trainperf.core.artifacts.trials import Trials
from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import TrialLaunch
from trainperf.recording.guard import Guard
from trainperf.trials.builtin import builtin_trials
from trainperf.trials.conductor import Conductor
from trainperf.trials.probe import TrialsProbe
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """What is to be tried, in a process that ends with the last trial."""

    own: tuple[Trial, ...] = ()
    """The user's, before the built-in ones."""
    launch: TrialLaunch = field(default_factory=TrialLaunch)
    """What the command was told; its defaults where there is none."""

    @classmethod
    def of(cls, trials: Sequence[Trial], launch: TrialLaunch | None = None) -> "TrialOptions":
        """The user's trials, in a process that was launched for them.

        Raises:
            ConfigError: A member is no trial, or two have the same name.
        """
        strangers = [trial for trial in trials if not isinstance(trial, Trial)]
        if strangers:
            raise ConfigError(
                f"trials=[{strangers[0]!r}]: not a Trial; try Trial('name', on=…, off=…)"
            )
        ids = [trial.id for trial in trials]
        twice = next((id_ for id_ in ids if ids.count(id_) > 1), None)
        if twice is not None:
            raise ConfigError(f"trials: two are named {twice!r}; give one another name")
        return cls(own=tuple(trials), launch=launch or TrialLaunch())

    def probe(self, training: Training, run: Path | None, guard: Guard) -> TrialsProbe:
        """The probe that carries them out.

        Args:
            training: That is tried.
            run: Directory of the run; `None` on ranks that write nothing.
            guard: Of the fit.
        """

        def tell(trials: Trials) -> None:
            if run is not None:
                write_document(trials, run)

        path = self.launch.earlier
        before = None if path is None else read_document(Trials, Path(path))
        earlier = [] if before is None else [trial for trial in before.trials if not trial.parts]
        chosen = self._chosen(training)
        conductor = Conductor(training, chosen, self.launch, tell, guard, earlier)
        # The training has no end of its own any more.
        guard.when_faulty(TrialsProbe.name, training.decide_alone)
        guard.when_faulty(TrialsProbe.name, training.end)
        return TrialsProbe(conductor, training)

    def _chosen(self, training: Training) -> list[Trial]:
        launch = self.launch
        # The user's come first, and take the place of built-in ones of their names.
        several = (*self.own, *builtin_trials(training), *self.own)
        return [
            trial
            for trial in {trial.id: trial for trial in several}.values()
            if (not launch.only or selects(launch.only, trial.id))
            and not selects(launch.without, trial.id)
        ]
