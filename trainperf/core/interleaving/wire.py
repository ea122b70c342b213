"""Messages between a training and its referee: one JSON line each, over a `Connection`."""

import socket

import msgspec


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """A fit begins, and waits for its first turn."""

    side: int
    ahead: int
    """Steps whose batches its loader has ready when it resumes: these are too fast."""


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
    """How many of the first ones must not be compared: a loader has worked ahead, or the other side
    has ended."""
    processor: int | None = None
    """Where the other side trained: processors of one machine may differ in speed."""


Message = Hello | TurnOver | Refusal
_MESSAGE = msgspec.json.Decoder(Message)
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

    def send(self, message: Message | Turn) -> bool:
        """Send it; false if the other end is gone."""
        try:
            self.end.sendall(_ENCODER.encode(message) + b"\n")
        except OSError:
            return False
        return True

    def wait_for_turn(self) -> Turn | None:
        """Wait for a turn; `None` if the other end is gone."""
        while True:
            lines = self._lines()
            if lines is None:
                return None
            for line in lines:
                return _TURN.decode(line)

    def received(self) -> list[Message] | None:
        """Complete messages that have arrived, perhaps none; `None` if the other end is gone."""
        lines = self._lines()
        return None if lines is None else [_MESSAGE.decode(line) for line in lines]

    def close(self) -> None:
        """Close the socket."""
        self.end.close()

    def _lines(self) -> list[bytes] | None:
        try:
            received = self.end.recv(_MOST_BYTES)
        except OSError:
            return None
        if not received:
            return None
        *whole, self._rest = (self._rest + received).split(b"\n")
        return whole
