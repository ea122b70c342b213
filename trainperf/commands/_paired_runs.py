"""Pairs of interleaved trainings: launched together, each in a process of its own."""

import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from trainperf.commands._last_words import last_words
from trainperf.commands._launching import POLL_S, why_unrecorded
from trainperf.commands._trainings import (
    OUTPUT,
    Training,
    TrainingCommand,
    end_group,
    end_trainings,
    sigterm_as_interrupt,
    started,
    tail,
    unused_folder,
)
from trainperf.commands.cli import say
from trainperf.core import run_directory
from trainperf.core.errors import RunError
from trainperf.core.interleaving import Participant, Referee, TurnsSoFar, new_address
from trainperf.core.launch_environment import LaunchOptions, signals_in


SIDES = ("before", "after")

_PORTS = ("MASTER_PORT", "PET_MASTER_PORT")
"""Where the ranks of a training meet; the second is what torchrun reads."""

Trainings = tuple[TrainingCommand, TrainingCommand]
"""Before, and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofOptions:
    """How many pairs of trainings at most, and how each is run."""

    pairs: int
    steps: int
    """Fewest steps per turn."""
    out: Path
    """Folder for the runs and the output of the trainings; numbered on if it exists."""
    to_the_end: bool = False
    """Whether no training is ended before it is through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOfRuns:
    """What one pair of trainings left."""

    runs: tuple[Path, Path]
    """Run directories."""
    ended: bool
    """Whether the trainings were ended because more turns would have been wasted."""
    interrupted: bool = False
    """Whether that was the user's wish."""


def run_pairs(
    trainings: Trainings, options: ProofOptions, enough: Callable[[int, TurnsSoFar], bool]
) -> Generator[PairOfRuns, None, None]:
    """Run both trainings, pair after pair, for as long as the caller goes on.

    Args:
        trainings: Before, and after.
        options: How often at most, and how.
        enough: From the number of a pair and its turns so far: whether no more are wanted.

    Raises:
        RunError: One of them cannot be compared.
    """
    out = unused_folder(options.out)
    with sigterm_as_interrupt():
        for number in range(1, options.pairs + 1):
            say(f"pair {number} of at most {options.pairs}, in {out}")
            folders = [out / f"{side}-{number}" for side in SIDES]
            # What interrupts a later pair leaves the earlier ones.
            yield _run_pair(trainings, folders, options.steps, partial(enough, number), number == 1)


def _run_pair(
    commands: Trainings,
    folders: Sequence[Path],
    steps: int,
    enough: Callable[[TurnsSoFar], bool],
    first: bool,  # noqa: FBT001 one caller
) -> PairOfRuns:
    interrupted = False
    with ExitStack() as stack:
        address = stack.enter_context(new_address())
        referee = stack.enter_context(Referee(address, steps, enough))
        trainings, signals = [], []
        for side, (command, folder) in enumerate(zip(commands, folders, strict=True)):
            place = Participant(address=str(address), side=side, dirpath=str(folder.resolve()))
            training, left = stack.enter_context(_training(command, folder, place))
            trainings.append(training)
            signals.append(left)
        try:
            _wait(trainings, referee, folders)
        except KeyboardInterrupt:
            if not (first and all(referee.passed)):
                raise
            interrupted = True
        end_trainings(trainings, signal.SIGINT)
        for side, folder in enumerate(folders):
            if not referee.passed[side]:
                why = _why_no_turns(folder, signals[side], steps)
                raise RunError(f"{folder}: did not take turns: {why}")
    return PairOfRuns(
        runs=(_run_in(folders[0]), _run_in(folders[1])),
        ended=referee.settled,
        interrupted=interrupted,
    )


@contextmanager
def _training(
    command: TrainingCommand, folder: Path, place: Participant
) -> Iterator[tuple[Training, Path]]:
    """One side, and the folder in which its processes leave signals."""
    folder.mkdir(parents=True)
    environment = {**command.environment, **_own_ports(), **place.variable()}
    with tempfile.TemporaryDirectory(prefix="trainperf-") as signals:
        launch = LaunchOptions(dirpath=place.dirpath, signals=signals)
        with started(replace(command, environment=environment), folder, launch) as training:
            yield training, Path(signals)


def _own_ports() -> Mapping[str, str]:
    """A free port for the ranks of one training, which both would look for at the same one."""
    if any(name in os.environ for name in _PORTS):
        return {}
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return dict.fromkeys(_PORTS, str(free.getsockname()[1]))


def _wait(trainings: Sequence[Training], referee: Referee, folders: Sequence[Path]) -> None:
    """Wait until both have ended, one has failed, or there were turns enough."""
    running = dict(enumerate(trainings))
    while running and not referee.settled:
        for side, training in list(running.items()):
            code = training.poll()
            if code is None:
                continue
            del running[side]
            end_group(training)
            referee.gone(side)
            if code:
                output = folders[side] / OUTPUT
                words = last_words(tail(output))
                why = f": {words}; see {output}" if words else ""
                raise RunError(f"{folders[side]}: the training ended with exit code {code}{why}")
        for side, why in list(referee.refused.items()):
            raise RunError(f"{folders[side]}: {why}")
        time.sleep(POLL_S)


def _has_begun(folder: Path) -> bool:
    """Whether the first fit of a training has recorded something."""
    return run_directory.has_begun(run_directory.record_file(folder / run_directory.NAME, 0))


def _why_no_turns(folder: Path, signals: Path, steps: int) -> str:
    """By what it has recorded, or what its processes have told."""
    if _has_begun(folder):
        return (
            f"it was over within its first turn of {steps} steps; train for more of them, or give "
            "--every a smaller number"
        )
    return why_unrecorded(signals_in(signals)) or "nothing was recorded on this machine"


def _run_in(folder: Path) -> Path:
    """The run of the first fit in a training's folder."""
    if not _has_begun(folder):
        raise RunError(f"{folder}: no run was written; see {folder / OUTPUT}")
    return folder / run_directory.NAME
