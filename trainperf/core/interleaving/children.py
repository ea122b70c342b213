"""Child processes that stand still while it is the other training's turn.

The workers of a DataLoader would go on making batches meanwhile: on processors that the other side
is timed on, and for steps that would then be too fast.  Stopped and continued, they are as far as
they were when the turn ended.

Another rank may be a child too: Lightning's launcher starts all others from the first.  A rank ends
its turn itself and stops its own workers, so it is left alone with all that descends from it.

So are processes of our own beside the training: they are in a session of their own, where nobody
would continue them if the training died in the other's turn.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

from trainperf.core.machine.processes import PARENT_VARIABLE


_RANK = "LOCAL_RANK"
"""Environment variable that launchers set, by which ranks of one machine are told apart."""


@contextmanager
def stopped() -> Iterator[None]:
    """Stop the descendants of this process, and continue them on leaving.

    Neither other ranks nor processes of our own are among them.
    """
    workers = list(_workers(psutil.Process()))
    for worker in workers:
        with suppress(psutil.Error):  # it has ended meanwhile
            worker.suspend()
    try:
        yield
    finally:
        for worker in workers:
            with suppress(psutil.Error):
                worker.resume()


def _workers(process: psutil.Process) -> Iterator[psutil.Process]:
    """Those that descend from a process, without what is left alone and its own."""
    children: Sequence[psutil.Process] = ()
    with suppress(psutil.Error):  # it has ended meanwhile
        children = process.children()
    for child in children:
        if not _is_left_alone(child):
            yield child
            yield from _workers(child)


def _is_left_alone(process: psutil.Process) -> bool:
    """By the environment it was launched with: a forked worker has that of its parent."""
    variables: dict[str, str] = {}
    with suppress(psutil.Error):
        variables = process.environ()
    own_rank = os.environ.get(_RANK, "")
    return PARENT_VARIABLE in variables or variables.get(_RANK, own_rank) != own_rank
