"""Environment variable through which a launched training learns that it takes turns."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec


VARIABLE = "TRAINPERF_TURNS"
"""Environment variable that holds a `Participant` as JSON in a process that takes turns."""

_LONGEST = 60
"""Longest folder for temporary files that leaves room for a socket's path, in letters."""


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    """Which of two trainings a process is, and where the referee of both listens."""

    address: str
    """Of a Unix socket."""
    side: int
    """0 for the one that begins, 1 for the other."""
    dirpath: str | None = None
    """Directory for its run directories; `None` leaves that to the training."""

    def variable(self) -> dict[str, str]:
        """The environment variable that holds it."""
        return {VARIABLE: msgspec.json.encode(self).decode()}


@contextmanager
def new_address() -> Iterator[Path]:
    """Where a referee can listen, for as long as this context is open."""
    # The path of a socket has room for a hundred letters, which a user's own TMPDIR may exceed.
    base = tempfile.gettempdir()
    short = base if len(base) < _LONGEST else "/tmp"  # noqa: S108 the folder itself is ours alone
    with tempfile.TemporaryDirectory(prefix="trainperf-", dir=short) as folder:
        yield Path(folder) / "turns"


def this_participant() -> Participant | None:
    """The participant that this process is; `None` if it takes no turns."""
    text = os.environ.get(VARIABLE, "")
    try:
        return msgspec.json.decode(text, type=Participant)
    except msgspec.DecodeError:  # nothing, or not from here: no training breaks over it
        return None


def directory() -> str | None:
    """Directory for this process's run directories, if its launcher chose one."""
    participant = this_participant()
    return participant.dirpath if participant else None
