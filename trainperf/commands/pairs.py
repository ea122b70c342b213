"""Pairs of trainings that take turns: launched together, each in a process of its own."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from trainperf import launched, rundir
from trainperf.commands.launch import command_of
from trainperf.errors import ConfigError, RunError
from trainperf.turns import Place, Referee


NAMES = ("before", "after")

_LOOK_S = 0.05
"""Between two looks whether a training has ended."""

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
    for number in range(1, pairs.number + 1):
        sys.stderr.write(f"trainperf: pair {number} of {pairs.number}, in {out}\n")
        made = _pair(commands, [out / f"{name}-{number}" for name in NAMES], pairs.steps)
        for side, run in zip(runs, made, strict=True):
            side.append(run)
    return runs


def _pair(commands: Sequence[Sequence[str]], places: Sequence[Path], steps: int) -> list[Path]:
    with ExitStack() as stack:
        # Short: the path of a socket has room for a hundred letters.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="trainperf-"))
        address = Path(folder) / "turns"
        referee = stack.enter_context(Referee(address, steps))
        trainings = [
            stack.enter_context(
                _training(
                    command, place, Place(address=str(address), side=side, dirpath=str(place))
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
def _training(command: Sequence[str], out: Path, place: Place) -> Iterator[subprocess.Popen[bytes]]:
    out.mkdir(parents=True)
    wanted = {"dirpath": place.dirpath, "audit_at": None, "loader_anatomy": False}
    environment = {**os.environ, launched.ASKED: json.dumps(wanted), **place.variable()}
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
            process.terminate()  # does nothing to one that has ended


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
        time.sleep(_LOOK_S)


def _failure(out: Path, code: int) -> str:
    said = _output(out).read_text(errors="replace").rstrip().splitlines()[-_LAST_LINES:]
    return f"{out}: the training ended with exit code {code}: " + " | ".join(said)


def _run_in(out: Path) -> Path:
    """The first run below a training's folder: of several fits the first."""
    run = out / "trainperf"
    if not rundir.record_file(run, 0).exists():
        raise RunError(f"{out}: no run was written; see {_output(out)}")
    return run


def _output(out: Path) -> Path:
    return out / "output.txt"


def _free(base: Path) -> Path:
    names = (base if not number else base.with_name(f"{base.name}-{number}") for number in count())
    return next(path for path in names if not path.exists())


def _command(training: str) -> list[str]:
    words = shlex.split(training)
    if not words:
        raise ConfigError('"": give a training, as in "train.py --lr 3e-4"')
    return command_of(words[0], words[1:])
