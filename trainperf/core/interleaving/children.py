"""Child processes that stand still while it is the other training's turn.

The workers of a DataLoader would go on making batches meanwhile: on processors that the other side
is timed on, and for steps that would then be too fast.  Stopped and continued, they are as far as
they were when the turn ended.  Linux only; elsewhere nothing is stopped.

Another rank may be a child too: Lightning's launcher starts all others from the first.  A rank ends
its turn itself and stops its own workers, so it is left alone with all that descends from it.

So are processes of our own beside the training: they are in a session of their own, where nobody
would continue them if the training died in the other's turn.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainperf.core.machine.limits import text_of
from trainperf.core.machine.processes import PARENT_VARIABLE


_TASKS = Path("/proc/self/task")

_RANK = "LOCAL_RANK"
"""Environment variable that launchers set, by which ranks of one machine are told apart."""


def can_be_stopped() -> bool:
    """Whether this system lists the children of a process."""
    return (_TASKS / str(os.getpid()) / "children").exists()


@contextmanager
def stopped() -> Iterator[None]:
    """Stop the descendants of this process, and continue them on leaving.

    Neither other ranks nor processes of our own are among them.
    """
    numbers = list(_descendants(os.getpid())) if can_be_stopped() else []
    _signal(numbers, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(numbers, signal.SIGCONT)


def _descendants(number: int) -> Iterator[int]:
    try:
        lists = [task.read_text() for task in Path(f"/proc/{number}/task").glob("*/children")]
    except OSError:  # it has ended meanwhile
        return
    for child in (int(word) for text in lists for word in text.split()):
        if _is_left_alone(child):
            continue
        yield child
        yield from _descendants(child)


def _is_left_alone(number: int) -> bool:
    """By the environment it was launched with: a forked worker has that of its parent."""
    launched_with = text_of(Path(f"/proc/{number}/environ")).split("\0")
    variables = dict(entry.split("=", 1) for entry in launched_with if "=" in entry)
    own_rank = os.environ.get(_RANK, "")
    return PARENT_VARIABLE in variables or variables.get(_RANK, own_rank) != own_rank


def _signal(numbers: list[int], sent: signal.Signals) -> None:
    for number in numbers:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(number, sent)
