"""Pairs of interleaved trainings: launched together, each in a process of its own."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from trainperf.commands._last_words import last_words
from trainperf.commands._others import Others
from trainperf.commands.run import POLL_S, command_of, why_unrecorded
from trainperf.core import run_directory
from trainperf.core.errors import ConfigError, RunError
from trainperf.core.interleaving import Participant, Referee, TurnsSoFar, new_address
from trainperf.core.launch_environment import LaunchOptions, signals_in


SIDES = ("before", "after")

_GRACE_S = 10.0
"""Time for a training to end after a signal."""

_PORTS = ("MASTER_PORT", "PET_MASTER_PORT")
"""Where the ranks of a training meet; the second is what torchrun reads."""

Training = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """How often the two trainings are run, and how."""

    pairs: int
    """At most."""
    steps: int
    """Fewest steps per turn."""
    out: Path
    """Folder for the runs and the output of the trainings; numbered on if it exists."""
    enough: Callable[[int, TurnsSoFar], bool] = lambda _number, _turns: False
    """From the number of a pair and its turns so far: whether more of them are not wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOfRuns:
    """What one pair of trainings left."""

    number: int
    """From 1."""
    runs: tuple[Path, Path]
    """Run directories."""
    ended: bool
    """Whether the trainings were ended because more turns would have been wasted."""
    interrupted: bool = False
    """Whether that was the user's wish."""
    others_cpus: tuple[float, ...] = ()
    """CPUs that other processes kept busy, in stretches of some seconds; empty if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCommand:
    """How a training is started."""

    words: Sequence[str]
    """Program and arguments."""
    cwd: Path | None = None
    """Its working directory; `None` is that of this process."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that it has in addition."""


class TrainingError(RunError):
    """A training that failed, was not measured, or took no turns; the other may be all right."""

    def __init__(self, side: int, why: str) -> None:
        super().__init__(why)
        self.side = side
        """0 is the one before."""


def run_pairs(
    trainings: tuple[TrainingCommand, TrainingCommand], options: PairOptions
) -> Generator[PairOfRuns, None, None]:
    """Run both trainings, pair after pair, for as long as the caller goes on.

    Args:
        trainings: Before, and after.
        options: How often at most, and how.

    Raises:
        TrainingError: One of them cannot be compared.
    """
    out = unused_folder(options.out)
    with sigterm_as_interrupt():
        for number in range(1, options.pairs + 1):
            sys.stderr.write(f"trainperf: pair {number} of at most {options.pairs}, in {out}\n")
            folders = [out / f"{side}-{number}" for side in SIDES]
            yield _run_pair(trainings, folders, number, options)


def _run_pair(
    commands: Sequence[TrainingCommand], folders: Sequence[Path], number: int, options: PairOptions
) -> PairOfRuns:
    interrupted = False
    with ExitStack() as stack:
        address = stack.enter_context(new_address())
        enough = partial(options.enough, number)
        referee = stack.enter_context(Referee(address, options.steps, enough))
        temporary = (tempfile.TemporaryDirectory(prefix="trainperf-") for _ in SIDES)
        signals = [Path(stack.enter_context(folder)) for folder in temporary]
        trainings = []
        for side, (command, folder) in enumerate(zip(commands, folders, strict=True)):
            dirpath = str(folder.resolve())
            launch = LaunchOptions(dirpath=dirpath, signals=str(signals[side]))
            place = Participant(address=str(address), side=side, dirpath=dirpath)
            trainings.append(stack.enter_context(_training(command, folder, launch, place)))
        others = Others()
        try:
            _wait(trainings, referee, folders, others)
        except KeyboardInterrupt:
            if number > 1 or not all(referee.passed):
                raise
            interrupted = True
        end_trainings(trainings, signal.SIGINT)
        for side, (passed, folder) in enumerate(zip(referee.passed, folders, strict=True)):
            if not passed:
                why = _why_no_turns(folder, signals[side], options.steps)
                raise TrainingError(side, f"{folder}: did not take turns: {why}")
    runs = (_run_in(folders[0], 0), _run_in(folders[1], 1))
    return PairOfRuns(
        number=number,
        runs=runs,
        ended=referee.settled,
        interrupted=interrupted,
        others_cpus=tuple(others.cpus),
    )


def _why_no_turns(folder: Path, signals: Path, steps: int) -> str:
    """By what it has recorded, or what its processes have told."""
    if run_directory.has_begun(run_directory.record_file(folder / run_directory.NAME, 0)):
        return (
            f"it was over within its first turn of {steps} steps; train for more of them, or give "
            "--every a smaller number"
        )
    return why_unrecorded(signals_in(signals)) or "nothing was recorded on this machine"


@contextmanager
def _training(
    command: TrainingCommand, out: Path, options: LaunchOptions, participant: Participant
) -> Iterator[Training]:
    out.mkdir(parents=True)
    own = {**_own_ports(), **participant.variable()}
    with (
        _output(out).open("wb") as output,
        subprocess.Popen(  # noqa: S603 the user's own training
            command.words,
            cwd=command.cwd,
            env={**options.environment({**os.environ, **command.environment}), **own},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches us alone, and we end them; what they started is in their group.
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            end_trainings([process], signal.SIGTERM)


def _own_ports() -> dict[str, str]:
    """A free port for the ranks of one training, which both would look for at the same one."""
    if any(name in os.environ for name in _PORTS):
        return {}
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return dict.fromkeys(_PORTS, str(free.getsockname()[1]))


def _wait(
    trainings: Sequence[Training], referee: Referee, folders: Sequence[Path], others: Others
) -> None:
    """Wait until both have ended, one has failed, or there were turns enough."""
    running = dict(enumerate(trainings))
    while running and not referee.settled:
        for side, training in list(running.items()):
            code = training.poll()
            if code is None:
                continue
            del running[side]
            _end_group(training)
            referee.gone(side)
            if code:
                raise TrainingError(side, _failure(folders[side], code))
        for side, why in list(referee.refused.items()):
            raise TrainingError(side, f"{folders[side]}: {why}")
        others.look()
        time.sleep(POLL_S)


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
        _end_group(training)


def _end_group(training: Training) -> None:
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


def _failure(out: Path, code: int) -> str:
    words = last_words(_output(out).read_text(encoding="utf-8", errors="replace"))
    ended = f"{out}: the training ended with exit code {code}"
    return f"{ended}: {words}; see {_output(out)}" if words else ended


def _run_in(out: Path, side: int) -> Path:
    """The run of the first fit in a training's folder."""
    run = out / run_directory.NAME
    if not run_directory.has_begun(run_directory.record_file(run, 0)):
        raise TrainingError(side, f"{out}: no run was written; see {_output(out)}")
    return run


def _output(out: Path) -> Path:
    return out / "output.txt"


def unused_folder(base: Path) -> Path:
    """The folder itself, or the first of `folder-1`, `folder-2`, … if it exists.

    Raises:
        ConfigError: It has no name.
    """
    if not base.name:
        raise ConfigError(f"--out {base}: name a folder; try runs/prove")
    names = (base if not number else base.with_name(f"{base.name}-{number}") for number in count())
    return next(path for path in names if not path.exists())


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
