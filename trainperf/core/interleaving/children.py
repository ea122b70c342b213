"""Child processes that stand still while it is the other training's turn.

The workers of a DataLoader would go on making batches meanwhile: on processors that the other side
is timed on, and for steps that would then be too fast.  Stopped and continued, they are as far as
they were when the turn ended.  Linux only; elsewhere nothing is stopped.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


_TASKS = Path("/proc/self/task")


def can_be_stopped() -> bool:
    """Whether this system lists the children of a process."""
    return (_TASKS / str(os.getpid()) / "children").exists()


@contextmanager
def stopped() -> Iterator[None]:
    """Stop every descendant of this process, and continue them on leaving."""
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
        yield child
        yield from _descendants(child)


def _signal(numbers: list[int], sent: signal.Signals) -> None:
    for number in numbers:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(number, sent)
