"""What do the two sides of a referee's socket say?  One JSON line each, in a `Connection`."""

import socket

import msgspec


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """A fit begins, and waits for its first turn."""

    side: int
    ahead: int
    """Steps whose batches its loader has ready when it comes back: what it is then too fast in."""


class TurnOver(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The turn is over."""

    processor: int | None = None
    """Number of the processor it trained on, where that is known."""
    last: bool = False
    """Whether the fit is over, and waits for that of the other side to be over too."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True, tag="refusal"):
    """A training that takes no turns."""

    side: int
    why: str


class Turn(msgspec.Struct, frozen=True, kw_only=True, tag="turn"):
    """It is your turn; after `TurnOver.last`: both fits are over."""

    steps: int
    """How many."""
    unlike: int
    """So many of the first ones are not to be compared: what worked ahead has worked meanwhile, or
    nobody takes turns with them."""
    processor: int | None = None
    """Where the other one trained: processors of one machine may differ in speed."""


Message = Hello | TurnOver | Refusal
_SAID = msgspec.json.Decoder(Message)
_TURN = msgspec.json.Decoder(Turn)
_ENCODER = msgspec.json.Encoder()
_MOST_BYTES = 4096


class Connection:
    """One end of a connection.

    Args:
        end: Its socket.
    """

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._rest = b""

    def say(self, what: Message | Turn) -> bool:
        """Send it; false if the other end is gone."""
        try:
            self.end.sendall(_ENCODER.encode(what) + b"\n")
        except OSError:
            return False
        return True

    def turn(self) -> Turn | None:
        """Wait until it is my turn; `None` if nobody says so any more."""
        while True:
            lines = self._lines()
            if lines is None:
                return None
            for line in lines:
                return _TURN.decode(line)

    def heard(self) -> list[Message] | None:
        """What has come, which may be part of a line only; `None` if the other end is gone."""
        lines = self._lines()
        return None if lines is None else [_SAID.decode(line) for line in lines]

    def close(self) -> None:
        """Nothing more is said."""
        self.end.close()

    def _lines(self) -> list[bytes] | None:
        try:
            came = self.end.recv(_MOST_BYTES)
        except OSError:
            return None
        if not came:
            return None
        *whole, self._rest = (self._rest + came).split(b"\n")
        return whole
