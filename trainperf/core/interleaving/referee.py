"""Referee: lets one of two trainings run at a time, in pairs of fits.

The first fit of one side is paired with the first of the other, and so on.  A side that is gone
is not waited for.
"""

import selectors
import socket
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from trainperf.core.interleaving.wire import Connection, Hello, Refusal, Turn, TurnOver


STEPS = 10
"""Steps of a turn: 0.1 s to some seconds, in which little changes on a machine."""

_LOOK_S = 0.1
"""Interval of the check whether a side is gone."""


@dataclass(slots=True)
class _Seat:
    """One fit of a pair."""

    connection: Connection
    hello: Hello
    over: bool = False
    """Whether the fit is over and waits for the other's end."""
    alone: int = 0
    """Turns since the other's fit ended; the first still came next to the other's last."""


class Referee:
    """Lets one of two sides train at a time, while this context is open.

    Args:
        address: Path of the Unix socket to listen at; it must not exist.
        steps: Of a turn, at least; it is longer where a loader works so far ahead that too few of
            them would be like the others.
    """

    def __init__(self, address: Path, steps: int = STEPS) -> None:
        self._address = address
        self._steps = steps
        self._listener = socket.socket(socket.AF_UNIX)
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._serve, name="trainperf referee", daemon=True)
        self._closing = False
        self._waiting: tuple[deque[_Seat], deque[_Seat]] = (deque(), deque())
        self._gone = [False, False]
        self._pair: dict[int, _Seat] = {}
        """Side to its fit, while a pair of fits is under way and that one is not gone."""
        self._turn_of = 0
        """The side whose turn it is."""
        self.refused: dict[int, str] = {}
        """Side to the reason why it takes no turns."""
        self.passed = [0, 0]
        """How often either side gave way to the other."""

    def __enter__(self) -> Self:
        self._listener.bind(str(self._address))
        self._listener.listen()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing = True
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Connection):
                key.data.close()
        self._listener.close()
        self._selector.close()
        self._address.unlink(missing_ok=True)

    def gone(self, side: int) -> None:
        """Report that the process of a side has ended: the other waits for it no more.

        Its connection may still be open, in a process that it forked.
        """
        self._gone[side] = True

    # -- inside: all of it in the referee's thread ----------------------------------------------

    def _serve(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(_LOOK_S):
                if isinstance(key.data, Connection):
                    self._hear(key.data)
                else:
                    end, _ = self._listener.accept()
                    self._selector.register(end, selectors.EVENT_READ, Connection(end))
            for side, gone in enumerate(self._gone):
                if gone and side in self._pair:
                    self._hang_up(self._pair[side].connection)
            self._begin()

    def _hear(self, connection: Connection) -> None:
        messages = connection.received()
        if messages is None:
            self._hang_up(connection)
            return
        for message in messages:
            if isinstance(message, Refusal):
                self.refused[message.side] = message.why
            elif isinstance(message, TurnOver):
                self._passed(connection, message)
            elif message.side in self._pair:
                # A fit inside that fit, or parallel to it: it cannot wait for its end.
                self._hang_up(connection)
            else:
                self._waiting[message.side].append(_Seat(connection, message))

    def _hang_up(self, connection: Connection) -> None:
        self._selector.unregister(connection.end)
        connection.close()
        self._left(connection)

    def _begin(self) -> None:
        """Begin the next pair, once both are there or never will be."""
        there = [bool(waiting) for waiting in self._waiting]
        if self._pair or not any(there):
            return
        if all(here or gone for here, gone in zip(there, self._gone, strict=True)):
            self._pair = {side: self._waiting[side].popleft() for side in (0, 1) if there[side]}
            self._give(min(self._pair), None)

    def _passed(self, connection: Connection, over: TurnOver) -> None:
        """A turn is over: the other one's begins, if that still trains."""
        side = self._side_of(connection)
        if side is None:
            return
        self._pair[side].over = over.last
        other = self._pair.get(1 - side)
        if other is not None and not other.over:
            self.passed[side] += 1
            self._give(1 - side, over.processor)
        elif over.last:
            self._end()
        else:
            self._give(side, None)

    def _left(self, connection: Connection) -> None:
        """A fit is gone, perhaps while it was its turn."""
        for waiting in self._waiting:
            for seat in [each for each in waiting if each.connection is connection]:
                waiting.remove(seat)
        side = self._side_of(connection)
        if side is None:
            return
        del self._pair[side]
        other = self._pair.get(1 - side)
        if other is None or other.over:
            self._end()
        elif self._turn_of == side:
            self._give(1 - side, None)

    def _side_of(self, connection: Connection) -> int | None:
        """The side whose fit is under way on that connection."""
        return next(
            (side for side, seat in self._pair.items() if seat.connection is connection), None
        )

    def _end(self) -> None:
        """Both fits are over: they go on with what follows."""
        pair, self._pair = self._pair, {}
        for seat in pair.values():
            seat.connection.send(Turn(steps=self._steps, unlike=self._steps))

    def _give(self, side: int, processor: int | None) -> None:
        self._turn_of = side
        unlike = 1 + max(seat.hello.ahead for seat in self._pair.values())
        steps = max(self._steps, 2 * unlike)
        other, own = self._pair.get(1 - side), self._pair[side]
        if other is None or other.over:
            own.alone += 1
        if own.alone > 1:
            unlike = steps
        own.connection.send(Turn(steps=steps, unlike=unlike, processor=processor))
