"""Does this process take turns with another one, and where does it ask whose turn it is?"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec


VARIABLE = "TRAINPERF_TURNS"
"""Environment variable that holds a `Participant` as JSON in a process that takes turns."""

_LONGEST = 60
"""Letters of a folder for temporary files in which a socket's path has room."""


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    """Which of two trainings a process is, and where the referee of both listens."""

    address: str
    """Of a Unix socket."""
    side: int
    """0 for the one that begins, 1 for the other."""
    dirpath: str | None = None
    """Directory for its run directories; `None` leaves that to the training."""

    def variable(self) -> dict[str, str]:
        """The environment variable that says so."""
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
    """Of this process; `None` where it takes turns with nobody."""
    asked = os.environ.get(VARIABLE, "")
    try:
        return msgspec.json.decode(asked, type=Participant)
    except msgspec.DecodeError:  # nothing, or not from here: no training breaks over it
        return None


def directory() -> str | None:
    """Where this process makes its run directories, if whoever launched it said so."""
    place = this_participant()
    return place.dirpath if place else None
