"""Trials on the terminal: a line per trial while they run, then the answer."""

import sys
from collections.abc import Sequence

from trainperf.analysis.diagnosis.offers import OfferedTrial
from trainperf.commands.cli import say
from trainperf.core.artifacts.trials import TrialResult, Trials
from trainperf.core.formatting.units import times
from trainperf.reports.layout.forms import rendered
from trainperf.reports.trial_offers import offers_document
from trainperf.reports.trials import trials_document


class TrialProgress:
    """Says on stderr what the trials have come to."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def tell(self, trials: Trials) -> None:
        """Say what is new."""
        for trial in trials.trials:
            if trial.id not in self._shown and trial.verdict != "not applicable":
                self._shown.add(trial.id)
                say(f"{trial.id}: {_outcome(trial)}")


def shown(trials: Trials, form: str) -> str:
    """What was tried, for stdout, in one of the forms of `--format`."""
    return rendered(trials_document(trials), trials, form, sys.stdout)


def listed(offers: Sequence[OfferedTrial], run: str, form: str) -> str:
    """What can be tried, likewise; *run* names the run that was asked about, if one was."""
    return rendered(offers_document(offers, run), offers, form, sys.stdout)


def _outcome(trial: TrialResult) -> str:
    number = f", {times(trial.speedup or 1.0)}" if trial.resolved else ""
    return f"{trial.verdict}{number}" + (f" ({trial.reason})" if trial.reason else "")
