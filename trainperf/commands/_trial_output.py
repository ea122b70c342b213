"""Trials on the terminal: a bar while they run, or a line per trial elsewhere; then the answer."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from trainperf.analysis.diagnosis.offers import OfferedTrial
from trainperf.core.artifacts.trials import TrialResult, Trials
from trainperf.core.formatting.escape import encodable, plain
from trainperf.core.formatting.units import times
from trainperf.reports.layout.forms import rendered
from trainperf.reports.trial_offers import offers_document
from trainperf.reports.trials import trials_document


class TrialProgress:
    """Shows on stderr what the trials have come to."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar
        self._task: TaskID | None = None if bar is None else bar.add_task(_STARTING, total=None)
        self._shown: set[str] = set()

    def tell(self, trials: Trials) -> None:
        """Show what is new."""
        if self._bar is not None and self._task is not None:
            # Sets come after what was planned.
            total = max(trials.planned, len(_tried(trials)) + bool(trials.trying))
            self._bar.update(
                self._task, description=_now(trials), completed=len(_tried(trials)), total=total
            )
            return
        for trial in _tried(trials):
            if trial.id not in self._shown:
                self._shown.add(trial.id)
                self.say(f"{trial.id}: {_outcome(trial)}")

    def say(self, sentence: str) -> None:
        """Show a sentence."""
        line = encodable(f"trainperf: {plain(sentence)}", sys.stderr)
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


_STARTING = "waiting for the first steps"


@contextmanager
def trial_progress() -> Iterator[TrialProgress]:
    """Progress on stderr, for as long as the block runs."""
    if not sys.stderr.isatty():
        yield TrialProgress(None)
        return
    columns = (
        TextColumn("  {task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.completed} of {task.total}"),
        TimeElapsedColumn(),
    )
    # The script has the machine: twice a second is enough.
    with Progress(
        *columns, console=Console(stderr=True), transient=True, refresh_per_second=2
    ) as bar:
        yield TrialProgress(bar)


def shown(trials: Trials, form: str) -> str:
    """What was tried, for stdout, in one of the forms of `--format`."""
    return rendered(trials_document(trials), trials, form, sys.stdout)


def listed(offers: Sequence[OfferedTrial], run: str, form: str) -> str:
    """What can be tried, likewise; *run* names the run that was asked about, if one was."""
    return rendered(offers_document(offers, run), offers, form, sys.stdout)


def _tried(trials: Trials) -> list[TrialResult]:
    return [trial for trial in trials.trials if trial.verdict != "not applicable"]


def _now(trials: Trials) -> str:
    """E.g. `trying autocast_bf16 · best so far 1.38×`."""
    best = trials.best
    so_far = "" if best is None else f" · best so far {times(best.speedup or 1.0)}"
    return f"trying {plain(trials.trying) or '…'}{so_far}"


def _outcome(trial: TrialResult) -> str:
    number = f", {times(trial.speedup or 1.0)}" if trial.resolved else ""
    return f"{trial.verdict}{number}" + (f" ({trial.reason})" if trial.reason else "")
