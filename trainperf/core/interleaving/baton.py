"""Baton: a training's connection to the referee, through which it waits for its turns."""

from multiprocessing.connection import Client, Connection

from trainperf.core.interleaving import children
from trainperf.core.interleaving.wire import (
    TURNS,
    Hello,
    Participant,
    Refusal,
    Turn,
    TurnOver,
    TurnTime,
    received,
    send,
)


class Baton:
    """Lets one fit train only while it is its turn.

    Once the referee is gone the fit trains on alone: nothing here raises.

    Args:
        participant: Where the referee listens, and which side this is.
    """

    def __init__(self, participant: Participant) -> None:
        self._participant = participant
        self._connection: Connection | None = None

    def join(self, rank: int = 0, world_size: int = 1) -> Turn | None:
        """Begin the fit: wait for the other one, and for the first turn.

        Args:
            rank: Of this process in its training.
            world_size: Ranks of the training; each has a baton.

        Returns:
            The first turn; `None` if there is no other side.
        """
        self._connection = self._connected()
        return self._wait(Hello(side=self._participant.side, rank=rank, world_size=world_size))

    def refuse(self, why: str) -> None:
        """Tell the referee that this training takes no turns."""
        connection = self._connected()
        if connection is not None:
            send(connection, Refusal(side=self._participant.side, why=why))
            connection.close()

    def pass_on(self, times: TurnTime | None = None) -> Turn | None:
        """End the turn: let the other side train, and wait for the next turn."""
        return self._wait(TurnOver(times=times))

    def leave(self) -> None:
        """End the fit, and wait for the other's end, which what follows would disturb."""
        self._wait(TurnOver(last=True))
        self.close()

    def close(self) -> None:
        """Disconnect: the other side trains alone from now on."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> Connection | None:
        try:
            return Client(self._participant.address, family="AF_UNIX")
        except OSError:
            return None

    def _wait(self, message: Hello | TurnOver) -> Turn | None:
        connection, turn = self._connection, None
        if connection is not None:
            with children.stopped():
                turn = received(connection, TURNS) if send(connection, message) else None
        if turn is None:
            self.close()
        return turn
