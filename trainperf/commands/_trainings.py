"""Trainings in processes of their own: how one is started, what it printed, how all of it ends."""

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from trainperf.analysis.run.parts import EDGE_BYTES
from trainperf.commands._launching import command_of
from trainperf.core import run_directory
from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import LaunchOptions


OUTPUT = "output.txt"
"""What a training printed, next to its run directory."""

_GRACE_S = 10.0
"""Time for a training to end after a signal."""

Training = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCommand:
    """How a training is started."""

    words: Sequence[str]
    """Program and arguments."""
    cwd: Path | None = None
    """Its working directory; `None` is that of this process."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that it has in addition."""


def parsed(training: str) -> TrainingCommand:
    """A command line, as for a shell.

    Raises:
        ConfigError: It cannot be run.
    """
    try:
        words = shlex.split(training)
    except ValueError as error:
        raise ConfigError(f"{training}: {error}") from None
    if not words:
        raise ConfigError('"": give a training, as in "train.py --lr 3e-4"')
    module = words[0] == "-m" and len(words) > 1
    return TrainingCommand(words=command_of(words[module], words[1 + module :], module=module))


@contextmanager
def started(command: TrainingCommand, folder: Path, launch: LaunchOptions) -> Iterator[Training]:
    """A training that prints into *folder*; nothing of it runs on when the block ends."""
    with (
        (folder / OUTPUT).open("wb") as output,
        subprocess.Popen(  # noqa: S603 the user's own training
            command.words,
            cwd=command.cwd,
            env=launch.environment({**os.environ, **command.environment}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches us alone, and we end it; what it started is in its group.
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            end_trainings([process], signal.SIGTERM)


def end_trainings(trainings: Sequence[Training], how: signal.Signals) -> None:
    """End those not known to have ended, first as asked, then by force, each with its group."""
    # Nobody has waited for these: their numbers are their own, also of one that ended just now.
    running = [training for training in trainings if training.returncode is None]
    for training in running:
        with suppress(ProcessLookupError):
            os.kill(training.pid, how)
    for training in running:
        with suppress(subprocess.TimeoutExpired):
            training.wait(_GRACE_S)
        end_group(training)


def end_group(training: Training) -> None:
    """End whatever a training has left running, as soon as its end is noticed.

    A training that dies in the other's turn cannot continue its children: they would stay stopped.
    Later the system may have given the number of an empty group to somebody else.
    """
    with suppress(ProcessLookupError, PermissionError):  # the second if all of it is zombies
        os.killpg(training.pid, signal.SIGKILL)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """`SIGTERM` to this process ends the trainings too, as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def tail(path: Path) -> str:
    """The end of what a training wrote; empty where there is none."""
    return run_directory.tail(path, EDGE_BYTES).decode(errors="replace")


def unused_folder(base: Path) -> Path:
    """The folder itself, or the first of `folder-1`, `folder-2`, … if it exists.

    Raises:
        ConfigError: It has no name.
    """
    if not base.name:
        raise ConfigError(f"--out {base}: name a folder; try runs/prove")
    names = (base if not number else base.with_name(f"{base.name}-{number}") for number in count())
    return next(path for path in names if not path.exists())
