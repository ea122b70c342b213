"""Trials on the terminal: a line per trial while they run, then the answer."""

import sys
from collections.abc import Sequence

from trainperf.analysis.diagnosis.offers import OfferedTrial
from trainperf.commands.cli import say
from trainperf.core.artifacts.trials import TrialResult, Trials
from trainperf.core.formatting.units import times
from trainperf.reports import trial_offers
from trainperf.reports.layout.json import offers_json, trials_json
from trainperf.reports.layout.terminal import styled, width_of
from trainperf.reports.trial_offers import offers_markdown
from trainperf.reports.trials import lines, trials_markdown


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
    if form == "json":
        return trials_json(trials)
    if form == "markdown":
        return trials_markdown(trials)
    return styled(lines(trials, width_of(sys.stdout)), sys.stdout)


def listed(offers: Sequence[OfferedTrial], run: str, form: str) -> str:
    """What can be tried, likewise; *run* names the run that was asked about, if one was."""
    if form == "json":
        return offers_json(offers)
    if form == "markdown":
        return offers_markdown(offers, run)
    return styled(trial_offers.lines(offers, run, width_of(sys.stdout)), sys.stdout)


def _outcome(trial: TrialResult) -> str:
    number = f", {times(trial.speedup or 1.0)}" if trial.resolved else ""
    return f"{trial.verdict}{number}" + (f" ({trial.reason})" if trial.reason else "")
