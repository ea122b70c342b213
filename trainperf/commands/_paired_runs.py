"""Pairs of interleaved trainings: launched together, each in a process of its own."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from trainperf.commands.run import command_of
from trainperf.core import run_directory
from trainperf.core.errors import ConfigError, RunError
from trainperf.core.interleaving import Participant, Referee, new_address
from trainperf.core.launch_environment import LaunchOptions


SIDES = ("before", "after")

_POLL_S = 0.05
"""Between two checks whether a training has ended."""

_GRACE_S = 10.0
"""Time for a training to end after `SIGTERM`."""

_LAST_LINES = 5
"""Quoted from the output of a training that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """How often the two trainings are run, and how."""

    pairs: int
    steps: int
    """Fewest steps per turn."""
    out: Path
    """Folder for the runs and the output of the trainings; numbered on if it exists."""


def run_pairs(trainings: tuple[str, str], options: PairOptions) -> tuple[list[Path], list[Path]]:
    """Run both trainings and return the run directories of each.

    Args:
        trainings: Command lines, as for a shell.
        options: How often, and how.

    Raises:
        ConfigError: A command line cannot be run.
        RunError: A training failed, was not measured, or did not take turns.
    """
    commands = [_command(training) for training in trainings]
    out = _unused(options.out)
    runs: tuple[list[Path], list[Path]] = ([], [])
    with _sigterm_as_interrupt():
        for number in range(1, options.pairs + 1):
            sys.stderr.write(f"trainperf: pair {number} of {options.pairs}, in {out}\n")
            folders = [out / f"{side}-{number}" for side in SIDES]
            for side, run in zip(runs, _run_pair(commands, folders, options.steps), strict=True):
                side.append(run)
    return runs


def _run_pair(commands: Sequence[Sequence[str]], folders: Sequence[Path], steps: int) -> list[Path]:
    with ExitStack() as stack:
        address = stack.enter_context(new_address())
        referee = stack.enter_context(Referee(address, steps))
        trainings = [
            stack.enter_context(
                _training(
                    command,
                    folder,
                    Participant(address=str(address), side=side, dirpath=str(folder.resolve())),
                )
            )
            for side, (command, folder) in enumerate(zip(commands, folders, strict=True))
        ]
        _wait(trainings, referee, folders)
    for passed, folder in zip(referee.passed, folders, strict=True):
        if not passed:
            raise RunError(
                f"{folder}: did not take turns; that needs a Lightning Trainer or a LoopMonitor on "
                "one rank, and more steps than a turn has"
            )
    return [_run_in(folder) for folder in folders]


@contextmanager
def _training(
    command: Sequence[str], out: Path, participant: Participant
) -> Iterator[subprocess.Popen[bytes]]:
    out.mkdir(parents=True)
    options = LaunchOptions(dirpath=participant.dirpath)
    environment = {**os.environ, **options.variable(), **participant.variable()}
    with (
        _output(out).open("wb") as output,
        subprocess.Popen(  # noqa: S603 the user's own training
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield process
        finally:
            _end(process)


def _wait(
    trainings: Sequence[subprocess.Popen[bytes]], referee: Referee, folders: Sequence[Path]
) -> None:
    """Wait until both have ended, or one has failed."""
    running = dict(enumerate(trainings))
    while running:
        for side, training in list(running.items()):
            code = training.poll()
            if code is None:
                continue
            del running[side]
            referee.gone(side)
            if code:
                raise RunError(_failure(folders[side], code))
        for side, why in list(referee.refused.items()):
            raise RunError(f"{folders[side]}: {why}")
        time.sleep(_POLL_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate it, and kill it if it does not end in time; no effect if it has ended."""
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """`SIGTERM` to this process ends the trainings too, as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _failure(out: Path, code: int) -> str:
    lines = _output(out).read_text(errors="replace").rstrip().splitlines()[-_LAST_LINES:]
    return f"{out}: the training ended with exit code {code}: " + " | ".join(lines)


def _run_in(out: Path) -> Path:
    """The run of the first fit in a training's folder."""
    run = out / run_directory.NAME
    if not run_directory.record_file(run, 0).exists():
        raise RunError(f"{out}: no run was written; see {_output(out)}")
    return run


def _output(out: Path) -> Path:
    return out / "output.txt"


def _unused(base: Path) -> Path:
    if not base.name:
        raise ConfigError(f"--out {base}: name a folder; try runs/prove")
    names = (base if not number else base.with_name(f"{base.name}-{number}") for number in count())
    return next(path for path in names if not path.exists())


def _command(training: str) -> list[str]:
    try:
        words = shlex.split(training)
    except ValueError as error:
        raise ConfigError(f"{training}: {error}") from None
    if not words:
        raise ConfigError('"": give a training, as in "train.py --lr 3e-4"')
    return command_of(words[0], words[1:])
