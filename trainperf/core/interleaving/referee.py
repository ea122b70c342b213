"""Referee: lets one of two trainings run at a time, in pairs of fits.

The first fit of one side is paired with the first of the other, and so on.  A fit of several ranks
trains when all of them wait for the turn, and the turn is over when all have ended it.  A side that
is gone is not waited for.
"""

import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from trainperf.core.interleaving.wire import (
    MESSAGES,
    Hello,
    Refusal,
    Turn,
    TurnOver,
    TurnTime,
    received,
    send,
)
from trainperf.core.machine.clocks import monotonic_ns


STEPS = 10
"""Steps of a turn: 0.1 s to some seconds, in which little changes on a machine."""

_LOOK_S = 0.1
"""Interval of the check whether a side is gone."""

_PATIENCE_NS = 60_000_000_000
"""How long the first rank of a fit waits for the last to begin."""

TurnsSoFar = tuple[Sequence[TurnTime], Sequence[TurnTime]]
"""What the turns of either side took, in order."""


@dataclass(slots=True, eq=False)
class _Seat:
    """One fit of a pair."""

    hello: Hello
    """Of the rank that came first."""
    since_ns: int
    ranks: dict[int, Connection] = field(default_factory=dict)
    training: set[Connection] = field(default_factory=set)
    """Of the ranks that have not ended the turn."""
    over: bool = False
    """Whether the fit is over and waits for the other's end."""
    alone: int = 0
    """Turns since the other's fit ended; the first still came next to the other's last."""

    @property
    def complete(self) -> bool:
        """Whether every rank is there."""
        return len(self.ranks) >= self.hello.world_size


class Referee:
    """Lets one of two sides train at a time, while this context is open.

    Args:
        address: Path of the Unix socket to listen at; it must not exist.
        steps: Of a turn.
        enough: Asked whenever both sides have had as many turns: whether the pair can be ended.  If
            so, `settled` is set and nobody gets another turn.
    """

    def __init__(
        self,
        address: Path,
        steps: int = STEPS,
        enough: Callable[[TurnsSoFar], bool] = lambda _: False,
    ) -> None:
        self._address = address
        self._steps = steps
        self._enough = enough
        self._listener = socket.socket(socket.AF_UNIX)
        self._seats: dict[Connection, _Seat | None] = {}
        """Every connection with its fit, once that has begun."""
        self._thread = threading.Thread(target=self._serve, name="trainperf referee", daemon=True)
        self._closing = False
        self._waiting: tuple[deque[_Seat], deque[_Seat]] = (deque(), deque())
        self._gone = [False, False]
        self._pair: dict[int, _Seat] = {}
        """Side to its fit, while a pair of fits is under way and that one is not gone."""
        self._turn_of = 0
        """The side whose turn it is."""
        self._times: tuple[list[TurnTime | None], list[TurnTime | None]] = ([], [])
        """Of the pair under way, turn by turn; `None` where no step of a turn can be compared."""
        self.refused: dict[int, str] = {}
        """Side to the reason why it takes no turns."""
        self.passed = [0, 0]
        """How often either side gave way to the other."""
        self.settled = False
        """Whether there were turns enough: both sides wait for ever, and can be ended."""

    def __enter__(self) -> Self:
        self._listener.bind(str(self._address))
        self._listener.listen()
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
        for connection in self._seats:
            connection.close()
        self._listener.close()
        self._address.unlink(missing_ok=True)

    def gone(self, side: int) -> None:
        """Report that the process of a side has ended: the other waits for it no more.

        Its connection may still be open, in a process that it forked.
        """
        self._gone[side] = True

    # -- inside: all of it in the referee's thread ----------------------------------------------

    def _serve(self) -> None:
        while not self._closing:
            for ready in wait([self._listener, *self._seats], _LOOK_S):
                if isinstance(ready, Connection):
                    self._hear(ready)
                else:
                    end, _ = self._listener.accept()
                    self._seats[Connection(end.detach())] = None
            for side, gone in enumerate(self._gone):
                if gone and side in self._pair:
                    self._hang_up(self._pair[side].ranks[0])
            if self._pair:
                self._go_on()
            else:
                self._begin()

    def _hear(self, connection: Connection) -> None:
        if connection not in self._seats:  # closed with another one that was ready
            return
        message = received(connection, MESSAGES)
        if isinstance(message, Refusal):
            self.refused[message.side] = message.why
        elif isinstance(message, TurnOver):
            self._passed(connection, message)
        elif message is not None and message.side not in self._pair:
            seat = self._seats[connection] = self._seat(message)
            seat.ranks[message.rank] = connection
        else:
            # Gone, or a fit inside the one that is under way: that cannot wait for its end.
            self._hang_up(connection)

    def _seat(self, hello: Hello) -> _Seat:
        """The fit of that side that this rank has not begun yet."""
        waiting = self._waiting[hello.side]
        for seat in waiting:
            if hello.rank not in seat.ranks:
                return seat
        waiting.append(_Seat(hello, monotonic_ns()))
        return waiting[-1]

    def _hang_up(self, connection: Connection) -> None:
        """Disconnect; the fit of that rank, if it has begun one, takes no more turns."""
        seat = self._seats[connection]
        for rank in [connection] if seat is None else seat.ranks.values():
            del self._seats[rank]
            rank.close()
        if seat is not None and seat in self._waiting[seat.hello.side]:
            self._waiting[seat.hello.side].remove(seat)
        self._pair = {side: other for side, other in self._pair.items() if other is not seat}

    def _begin(self) -> None:
        """Begin the next pair, once both are there or never will be."""
        for side, waiting in enumerate(self._waiting):
            seat = waiting[0] if waiting else None
            if seat and not seat.complete and monotonic_ns() - seat.since_ns > _PATIENCE_NS:
                self.refused[side] = (
                    f"{len(seat.ranks)} of {seat.hello.world_size} ranks take turns; measure "
                    "every rank, on one machine"
                )
        there = [bool(waiting) and waiting[0].complete for waiting in self._waiting]
        if any(there) and all(here or gone for here, gone in zip(there, self._gone, strict=True)):
            self._pair = {side: self._waiting[side].popleft() for side in (0, 1) if there[side]}
            self._times = ([], [])
            self._give(min(self._pair))

    def _trains(self, side: int) -> bool:
        """Whether that side has a part in this pair that is not over."""
        return side in self._pair and not self._pair[side].over

    def _passed(self, connection: Connection, over: TurnOver) -> None:
        """A turn is over for a rank."""
        seat = self._seats[connection]
        if seat is None or seat not in self._pair.values():
            return
        side = seat.hello.side
        seat.training.discard(connection)
        seat.over = seat.over or over.last
        if self._trains(1 - side) and connection is seat.ranks[0] and not over.last:
            self._times[side].append(over.times)

    def _go_on(self) -> None:
        """Give the next turn, once the present one is over for every rank."""
        side, own = self._turn_of, self._pair.get(self._turn_of)
        if self.settled or (own is not None and own.training):
            return
        if self._trains(1 - side):
            if own is not None:
                self._count_turn(side, own)
            if not self.settled:
                self._give(1 - side)
        elif own is None or own.over:
            self._end()
        else:
            self._give(side)

    def _count_turn(self, side: int, own: _Seat) -> None:
        self.passed[side] += 1
        if side == 1 and not own.over:
            # A turn and the other side's next one are neighbours in time: they count together.
            pairs = zip(*self._times, strict=False)  # a fit may be a turn ahead
            both = [(before, after) for before, after in pairs if before and after]
            self.settled = self._enough(([old for old, _ in both], [new for _, new in both]))

    def _end(self) -> None:
        """Both fits are over: they go on with what follows."""
        pair, self._pair = self._pair, {}
        for seat in pair.values():
            for connection in seat.ranks.values():
                send(connection, Turn(steps=self._steps, alone=True))

    def _give(self, side: int) -> None:
        self._turn_of = side
        own = self._pair[side]
        if not self._trains(1 - side):
            own.alone += 1
        own.training = set(own.ranks.values())
        for connection in own.ranks.values():
            send(connection, Turn(steps=self._steps, alone=own.alone > 1))
