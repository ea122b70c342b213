"""Pairs of trainings that take turns: launched together, each in a process of its own."""

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


NAMES = ("before", "after")

_LOOK_S = 0.05
"""Between two looks whether a training has ended."""

_GRACE_S = 10.0
"""For a training that is told to end."""

_LAST_LINES = 5
"""Of the output of a training that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """How often two trainings are run, and how."""

    number: int
    steps: int
    """Of a turn, at least."""
    out: Path
    """Folder for the runs and for what the trainings print; another one if it exists."""


def runs_of(trainings: tuple[str, str], pairs: Pairs) -> tuple[list[Path], list[Path]]:
    """Run both as often as asked; the run directories of either.

    Args:
        trainings: Command lines, as for a shell.
        pairs: How often, and how.

    Raises:
        ConfigError: A command line cannot be run.
        RunError: A training failed, or was not measured, or took no turns.
    """
    commands = [_command(training) for training in trainings]
    out = _free(pairs.out)
    runs: tuple[list[Path], list[Path]] = ([], [])
    with _ended_by_signal():
        for number in range(1, pairs.number + 1):
            sys.stderr.write(f"trainperf: pair {number} of {pairs.number}, in {out}\n")
            made = _pair(commands, [out / f"{name}-{number}" for name in NAMES], pairs.steps)
            for side, run in zip(runs, made, strict=True):
                side.append(run)
    return runs


def _pair(commands: Sequence[Sequence[str]], places: Sequence[Path], steps: int) -> list[Path]:
    with ExitStack() as stack:
        address = stack.enter_context(new_address())
        referee = stack.enter_context(Referee(address, steps))
        trainings = [
            stack.enter_context(
                _training(
                    command,
                    place,
                    Participant(address=str(address), side=side, dirpath=str(place.resolve())),
                )
            )
            for side, (command, place) in enumerate(zip(commands, places, strict=True))
        ]
        _wait(trainings, referee, places)
    for passed, place in zip(referee.passed, places, strict=True):
        if not passed:
            raise RunError(
                f"{place}: took no turns; a Lightning Trainer or a LoopMonitor on one rank does, "
                "and its loop must have more steps than a turn"
            )
    return [_run_in(place) for place in places]


@contextmanager
def _training(
    command: Sequence[str], out: Path, place: Participant
) -> Iterator[subprocess.Popen[bytes]]:
    out.mkdir(parents=True)
    options = LaunchOptions(dirpath=place.dirpath)
    environment = {**os.environ, **options.variable(), **place.variable()}
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
    trainings: Sequence[subprocess.Popen[bytes]], referee: Referee, places: Sequence[Path]
) -> None:
    """Until both have ended, or one has failed."""
    running = dict(enumerate(trainings))
    while running:
        for side, training in list(running.items()):
            code = training.poll()
            if code is None:
                continue
            del running[side]
            referee.gone(side)
            if code:
                raise RunError(_failure(places[side], code))
        for side, why in list(referee.refused.items()):
            raise RunError(f"{places[side]}: {why}")
        time.sleep(_LOOK_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """At once if it can, with force if it does not; nothing happens to one that has ended."""
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Whoever ends this process ends the trainings too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _failure(out: Path, code: int) -> str:
    said = _output(out).read_text(errors="replace").rstrip().splitlines()[-_LAST_LINES:]
    return f"{out}: the training ended with exit code {code}: " + " | ".join(said)


def _run_in(out: Path) -> Path:
    """The first run below a training's folder: of several fits the first."""
    run = out / run_directory.NAME
    if not run_directory.record_file(run, 0).exists():
        raise RunError(f"{out}: no run was written; see {_output(out)}")
    return run


def _output(out: Path) -> Path:
    return out / "output.txt"


def _free(base: Path) -> Path:
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
