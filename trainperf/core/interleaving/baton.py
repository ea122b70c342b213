"""Is it my turn?  The end of one training's connection to the referee."""

import socket

from trainperf.core.interleaving.cpu_affinity import move_to, processor
from trainperf.core.interleaving.environment import Participant
from trainperf.core.interleaving.wire import Connection, Hello, Refusal, Turn, TurnOver


class Baton:
    """Lets one fit train only while it is its turn.

    Where the referee is gone, the fit trains on alone: nothing here raises.

    Args:
        place: Where the referee listens, and which side this is.
    """

    def __init__(self, place: Participant) -> None:
        self._place = place
        self._line: Connection | None = None
        self.turns = 0
        """How many this fit has had."""

    def join(self, ahead: int) -> Turn | None:
        """The fit begins: wait until the other one does, and for the first turn.

        Args:
            ahead: Steps whose batches the loader has ready when training comes back to it.

        Returns:
            How many steps a turn has; `None` if there is nobody to take turns with.
        """
        self._line = self._connected()
        return self._wait(Hello(side=self._place.side, ahead=ahead))

    def refuse(self, why: str) -> None:
        """This training takes no turns; whoever launched it is told."""
        line = self._connected()
        if line is not None:
            line.say(Refusal(side=self._place.side, why=why))
            line.close()

    def pass_on(self) -> Turn | None:
        """The turn is over: let the other one train, and wait for the next turn."""
        return self._wait(TurnOver(processor=processor()))

    def leave(self) -> None:
        """The fit is over.  Waits for the other's end: what follows the fit would disturb it."""
        self._wait(TurnOver(processor=processor(), last=True))
        self.close()

    def close(self) -> None:
        """Wait for nobody: the other one trains alone from now on."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _connected(self) -> Connection | None:
        end = socket.socket(socket.AF_UNIX)
        try:
            end.connect(self._place.address)
        except OSError:
            end.close()
            return None
        return Connection(end)

    def _wait(self, said: Hello | TurnOver) -> Turn | None:
        line = self._line
        turn = line.turn() if line is not None and line.say(said) else None
        if turn is None:
            self.close()
            return None
        self.turns += 1
        move_to(turn.processor)
        return turn
