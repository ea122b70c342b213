"""Meeting point of a training and its referee: an environment variable, and messages.

A message is JSON, over a connection of `multiprocessing`.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

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


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """A fit begins, and waits for its first turn."""

    side: int
    rank: int = 0
    world_size: int = 1
    """Ranks of the fit: all of them wait for a turn, and it is over when all are through."""


class TurnTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long the steps of one turn took, on the host clock."""

    steps: int
    steady: int
    """Steps that can be compared."""
    steady_ns: float
    """Their median."""
    whole_ns: float
    """Mean over all steps, with the gaps between them and everything else in the turn."""
    period: int = 0
    """Steps after which an epoch, a validation or a checkpoint comes back, as far as that is known
    by now: the longest of them; 0 if nothing is known to."""


class TurnOver(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The turn is over."""

    last: bool = False
    """Whether the fit is over, and waits for that of the other side to be over too."""
    times: TurnTime | None = None
    """`None` where no step of the turn can be compared."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True, tag="refusal"):
    """A training that takes no turns."""

    side: int
    why: str


class Turn(msgspec.Struct, frozen=True, kw_only=True, tag="turn"):
    """It is your turn; after `TurnOver.last`: both fits are over."""

    steps: int
    """How many."""
    alone: bool = False
    """Whether they must not be compared: the other side has ended."""


Message = Hello | TurnOver | Refusal
MESSAGES = msgspec.json.Decoder(Message)
TURNS = msgspec.json.Decoder(Turn)

M = TypeVar("M")


def send(connection: Connection, message: Message | Turn) -> bool:
    """Send it; false if the other end is gone."""
    try:
        connection.send_bytes(msgspec.json.encode(message))
    except OSError:
        return False
    return True


def received(connection: Connection, kind: msgspec.json.Decoder[M]) -> M | None:
    """The next message, which is waited for; `None` if the other end is gone."""
    try:
        return kind.decode(connection.recv_bytes())
    except (EOFError, OSError):
        return None
