"""Attempts at the trials of a script: it is started for them, and again where one ended it."""

import re
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from trainperf.analysis.run.directory import Run
from trainperf.commands._last_words import last_words
from trainperf.commands._launching import POLL_S, why_unrecorded
from trainperf.commands._trainings import (
    OUTPUT,
    Training,
    TrainingCommand,
    end_trainings,
    sigterm_as_interrupt,
    started,
    tail,
    unused_folder,
)
from trainperf.commands.cli import say
from trainperf.core import run_directory
from trainperf.core.artifacts import read_document, write_document
from trainperf.core.artifacts.trials import TrialResult, Trials, in_order
from trainperf.core.choice import texts_of
from trainperf.core.errors import RunError
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, times
from trainperf.core.launch_environment import LaunchOptions, TrialLaunch, signals_in
from trainperf.core.loop_kind import LoopKind, loop_of
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.steps.records import FINISHED


SILENT_S = 600.0
"""Without a step, a trial or a word from the script: then a trial has hung it."""

SILENCED = {"WANDB_MODE": "disabled", "COMET_AUTO_LOG_DISABLE": "1"}
"""Variables by which trackers leave no run of a training that is thrown away.  MLflow has none."""

_MEMORY = re.compile(r"out of memory|OutOfMemory|MemoryError|can't allocate memory", re.IGNORECASE)
_RANK_SIGNAL = re.compile(r"Signal \d+ \((SIG\w+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOptions:
    """What is started, and where its run goes."""

    words: list[str]
    """Program and arguments."""
    out: Path
    """Folder for the run directory; numbered on if it exists."""
    launch: LaunchOptions
    """Of the training, but for the folder."""
    trials: TrialLaunch
    silent_s: float = SILENT_S
    reported: set[str] = field(default_factory=set)
    """Trials whose outcome was told, by any attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRun:
    """What the attempts left."""

    path: Path
    """The run directory."""
    trials: Trials
    remarks: tuple[str, ...]
    """Why trials had no turn; what a loop of this kind does not let one try, and what would."""
    interrupted: bool


def try_out(options: AttemptOptions) -> TriedRun:
    """Run the script for its trials, and again without a trial that ended it.

    One run directory is left, that of the last attempt with results; without any, nothing is.

    Raises:
        ConfigError: The folder has no name.
        KeyboardInterrupt: Before there was a result.
        RunError: The script never came to its first trial.
    """
    options = replace(options, out=unused_folder(options.out))
    options.out.mkdir(parents=True)
    tried = None
    try:
        with sigterm_as_interrupt():
            tried = _until_it_ends(options)
        return tried
    finally:
        leftovers = {options.out} if tried is None else _run_directories(options.out) - {tried.path}
        for folder in leftovers:
            shutil.rmtree(folder)


def _until_it_ends(options: AttemptOptions) -> TriedRun:
    """Attempts until one ends by itself, or by a trial that has ended one before."""
    ended_by: dict[str, str] = {}
    attempt = latest = _attempt(options, options.trials)
    while (culprit := attempt.culprit) and culprit not in ended_by:
        ended_by[culprit] = attempt.why()
        latest = attempt
        say(f"{culprit} ended the script ({ended_by[culprit]}): it is started again")
        attempt = _attempt(options, _remaining(options.trials, latest, ended_by))
    if attempt.trials is not None:
        latest = attempt
    return _result(latest, attempt, ended_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One start of the script, after its end."""

    run: Path | None
    """The run directory that it made, if it did."""
    trials: Trials | None
    output: str
    """The end of what it printed."""
    code: int
    silent_s: float | None
    """How long nothing was heard of it before it was ended for that; `None` if it was not."""
    interrupted: bool
    unrecorded: str
    """Why nothing was recorded, as far as its processes have told."""

    @property
    def culprit(self) -> str:
        """Id of the trial that ended it; empty if none did."""
        died = self.silent_s is not None or (self.code != 0 and not self._trained_to_its_end())
        return (
            self.trials.trying if self.trials is not None and died and not self.interrupted else ""
        )

    def _trained_to_its_end(self) -> bool:
        if self.run is None:
            return False
        records = tail(run_directory.last_part(run_directory.record_file(self.run, 0)))
        return f'"reason":"{FINISHED}"' in "".join(records.splitlines()[-1:])

    def why(self) -> str:
        """How it ended, in a few words."""
        if self.silent_s is not None:
            return f"nothing was heard of it for {duration(self.silent_s)}"
        of_rank = _RANK_SIGNAL.search(self.output)
        by_signal = of_rank[1] if of_rank and of_rank[1] != "SIGTERM" else ""
        if self.code < 0:
            by_signal = signal.Signals(-self.code).name
        if by_signal:
            memory = ", as the system does when memory is out" if by_signal == "SIGKILL" else ""
            return f"ended by {by_signal}{memory}"
        error = last_words(self.output)
        if _MEMORY.search(error):
            return f"out of memory: {error}"
        return error or f"exit code {self.code}"


def _run_directories(folder: Path) -> set[Path]:
    """All run directories in a folder."""
    return {path for path in folder.glob(f"{run_directory.NAME}*") if path.is_dir()}


def _attempt(options: AttemptOptions, trials: TrialLaunch) -> _Attempt:
    """Start the script and wait for its end."""
    before = _run_directories(options.out)
    silent_s, interrupted = None, False
    command = TrainingCommand(words=options.words, environment=SILENCED)
    with tempfile.TemporaryDirectory(prefix="trainperf-") as signals:
        out = str(options.out.resolve())
        launch = replace(options.launch, dirpath=out, trials=trials, signals=signals)
        with started(command, options.out, launch) as process:
            try:
                silent_s = _watch(process, before, options)
            except KeyboardInterrupt:
                interrupted = True
            end_trainings([process], signal.SIGINT if interrupted else signal.SIGTERM)
            code = process.wait()
        unrecorded = why_unrecorded(signals_in(Path(signals)))
    run = _new_run(options.out, before)
    return _Attempt(
        run=run,
        trials=None if run is None else read_document(Trials, run),
        output=tail(options.out / OUTPUT),
        code=code,
        silent_s=silent_s,
        interrupted=interrupted,
        unrecorded=unrecorded,
    )


def _new_run(out: Path, before: set[Path]) -> Path | None:
    """The first one that was not there before: a script may train more than once."""
    return min(_run_directories(out) - before, key=lambda run: run.stat().st_ctime_ns, default=None)


def _watch(process: Training, before: set[Path], options: AttemptOptions) -> float | None:
    """Wait for its end, telling what the trials come to; how long it was silent, if too long."""
    written_ns = 0
    trials: Trials | None = None
    heard_ns = monotonic_ns()
    while process.poll() is None:
        run = _new_run(options.out, before)
        latest_ns = max(map(_written_ns, (options.out, *([] if run is None else [run]))))
        if latest_ns != written_ns:
            written_ns, heard_ns = latest_ns, monotonic_ns()
            trials = None if run is None else read_document(Trials, run)
            _tell(trials, options.reported)
        silent_s = (monotonic_ns() - heard_ns) / 1e9
        if trials is not None and trials.trying and silent_s > options.silent_s:
            return silent_s
        time.sleep(POLL_S)
    return None


def _tell(trials: Trials | None, reported: set[str]) -> None:
    """Say on stderr what the trials have come to that was not said yet."""
    for trial in () if trials is None else trials.trials:
        if trial.id not in reported and trial.verdict != "not applicable":
            reported.add(trial.id)
            number = f", {times(trial.speedup or 1.0)}" if trial.resolved else ""
            reason = f" ({trial.reason})" if trial.reason else ""
            say(f"{trial.id}: {trial.verdict}{number}{reason}")


def _written_ns(folder: Path) -> int:
    """When a file in a folder was last written."""
    return max((each.stat().st_mtime_ns for each in folder.iterdir() if each.is_file()), default=0)


def _remaining(trials: TrialLaunch, latest: _Attempt, ended_by: dict[str, str]) -> TrialLaunch:
    """What is left to be tried, and how long that may take."""
    results = () if latest.trials is None else latest.trials.trials
    spent = sum(trial.took_s for trial in results) / 60
    return replace(
        trials,
        minutes=max(trials.minutes - spent, LIMITS.notable * trials.minutes),
        earlier=None if latest.run is None else str(latest.run.resolve()),
        ended_by=dict(ended_by),
    )


def _result(latest: _Attempt, last: _Attempt, ended_by: dict[str, str]) -> TriedRun:
    """What the attempts came to, also on disk."""
    if latest.run is None or latest.trials is None:
        if last.interrupted:
            raise KeyboardInterrupt
        raise RunError(_never_tried(last))
    trials = _with_failed(latest.trials, ended_by)
    write_document(trials, latest.run)
    cut_short = trials.trying and not last.interrupted
    return TriedRun(
        path=latest.run,
        trials=trials,
        remarks=texts_of(
            cut_short
            and "the script ended before all trials had had their turn; let it train for more "
            "steps or epochs",
            _loop(latest.run).trials_from_outside,
        ),
        interrupted=last.interrupted,
    )


def _loop(run: Path) -> LoopKind:
    return loop_of(Run.open(run).info.config)


def _with_failed(trials: Trials, ended_by: dict[str, str]) -> Trials:
    """The document with those that ended the script, where no later attempt has noted them."""
    noted = {trial.id for trial in trials.trials}
    failed = [
        TrialResult(id=id_, kind="change", title=id_, verdict="failed", reason=why)
        for id_, why in ended_by.items()
        if id_ not in noted
    ]
    trying = "" if trials.trying in ended_by else trials.trying
    results = in_order([*trials.trials, *failed])
    return msgspec.structs.replace(trials, trials=results, trying=trying)


def _never_tried(last: _Attempt) -> str:
    """Why there is no trial, and what to do."""
    if last.code:
        return f"the script ended before anything was tried: {last.why()}"
    if last.run is None:
        return f"nothing was tried: {last.unrecorded or 'no run was written on this machine'}"
    watched = _loop(last.run).to_be_tried
    return f"the training ended before the first trial; let it train for more steps{watched}"
