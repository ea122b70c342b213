"""One of two fits trains at a time, a few steps each; a side that is gone is not waited for."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.waiting import PATIENCE_S, until

from trainperf.core.interleaving import (
    VARIABLE,
    Baton,
    Participant,
    Referee,
    TurnsSoFar,
    this_participant,
)
from trainperf.core.interleaving.wire import Turn, TurnTime


TURN = TurnTime(steps=3, steady=3, steady_ns=1.0, whole_ns=1.0)


@pytest.fixture
def address(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the referee of a test listens."""
    return tmp_path_factory.mktemp("t") / "turns"


@pytest.fixture
def referee(address: Path) -> Iterator[Referee]:
    """Turns of three steps."""
    with Referee(address, steps=3) as opened:
        yield opened


def baton(address: Path, side: int) -> Baton:
    """That of one side."""
    return Baton(Participant(address=str(address), side=side))


def hang_up(mine: Baton) -> None:
    """As if the process had died, while the baton waits in another thread."""
    with socket.socket(fileno=os.dup(mine._connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def fit(mine: Baton, steps: int, each: Callable[[], object]) -> Turn | None:
    """So many steps in turns, as the probe does it; its first turn."""
    first = turn = mine.join()
    done = 0
    for _ in range(steps):
        each()
        done += 1
        if turn is not None and done == turn.steps:
            turn, done = mine.pass_on(), 0
    mine.leave()
    return first


def at_once(*fits: Callable[[], object]) -> None:
    """Every fit in a thread of its own; all must end."""
    threads = [threading.Thread(target=one, daemon=True) for one in fits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)


def test_two_fits_take_turns_of_so_many_steps(address: Path, referee: Referee) -> None:
    """Three of the one, three of the other, and the one that has more goes on alone."""
    seen: list[int] = []

    at_once(
        lambda: fit(baton(address, 1), 10, lambda: seen.append(1)),
        lambda: fit(baton(address, 0), 6, lambda: seen.append(0)),
    )

    assert seen == [0] * 3 + [1] * 3 + [0] * 3 + [1] * 7
    assert referee.passed == [3, 2]


def test_the_second_fits_of_both_sides_are_a_pair_too(address: Path, referee: Referee) -> None:
    """Neither begins its second fit before both first ones are over."""
    del referee
    seen: list[str] = []

    def side(number: int) -> None:
        for name in "ab":
            fit(baton(address, number), 3, lambda name=name: seen.append(f"{name}{number}"))  # type: ignore[misc]

    at_once(lambda: side(0), lambda: side(1))

    assert seen == ["a0"] * 3 + ["a1"] * 3 + ["b0"] * 3 + ["b1"] * 3


def test_what_is_trained_alone_is_not_to_be_compared(address: Path, referee: Referee) -> None:
    """Beside the other fit's last turn there is one more; every step after that is left out."""
    del referee
    alone: list[bool] = []

    def longer() -> None:
        mine = baton(address, 0)
        turn = mine.join()
        while turn is not None and len(alone) < 6:
            alone.append(turn.alone)
            turn = mine.pass_on()
        mine.leave()

    at_once(longer, lambda: fit(baton(address, 1), 6, list))

    assert alone == [False] * 4 + [True] * 2


def test_two_ranks_take_and_give_the_turn_together(address: Path, referee: Referee) -> None:
    """Neither side trains before both ranks of the other are through."""
    del referee
    order: list[int] = []

    def rank(side: int, number: int, pause_s: float) -> None:
        mine = baton(address, side)
        turn = mine.join(rank=number, world_size=2)
        for _ in range(2):
            for _ in range(turn.steps):
                time.sleep(pause_s)
                order.append(side)
            turn = mine.pass_on()
        mine.leave()

    at_once(*(lambda s=s, r=r: rank(s, r, 0.01 * r) for s in (0, 1) for r in (0, 1)))  # type: ignore[misc]

    assert order == ([0] * 6 + [1] * 6) * 2


def test_a_rank_that_does_not_take_turns_is_told(
    address: Path, referee: Referee, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two ranks is there: nobody waits for ever."""
    monkeypatch.setattr("trainperf.core.interleaving.referee._PATIENCE_NS", 0)
    waits = threading.Thread(
        target=lambda: baton(address, 0).join(rank=0, world_size=2), daemon=True
    )
    waits.start()

    until(lambda: referee.refused)
    assert referee.refused[0].startswith("1 of 2 ranks take turns")


def test_ranks_that_leave_together_are_not_waited_for(address: Path) -> None:
    """Both connections of a side close before the referee looks: the other side trains on."""
    looking, going = threading.Event(), threading.Event()
    ranks = [baton(address, 0) for _ in range(2)]
    alone: list[int] = []

    def enough(_: TurnsSoFar) -> bool:
        looking.set()
        return not going.wait(PATIENCE_S)

    def rank(number: int) -> None:
        ranks[number].join(rank=number, world_size=2)
        ranks[number].pass_on()

    def leave() -> None:
        assert looking.wait(PATIENCE_S)
        for mine in ranks:
            hang_up(mine)
        going.set()

    def other() -> None:
        mine = baton(address, 1)
        mine.join()
        for _ in range(3):
            mine.pass_on(TURN)
            alone.append(1)
        mine.leave()

    with Referee(address, steps=3, enough=enough):
        at_once(lambda: rank(0), lambda: rank(1), leave, other)

    assert alone == [1, 1, 1]


def test_a_rank_that_leaves_before_the_fit_begins_frees_the_others(
    address: Path, referee: Referee
) -> None:
    """The rank that is left trains without turns, instead of waiting for ever."""
    gone, left = baton(address, 0), baton(address, 0)
    turns: list[Turn | None] = []

    def leave() -> None:
        waiting = referee._waiting[0]
        until(lambda: waiting and len(waiting[0].ranks) == 2)
        hang_up(gone)

    at_once(
        lambda: gone.join(rank=1, world_size=3),
        lambda: turns.append(left.join(rank=0, world_size=3)),
        leave,
    )

    assert turns == [None]


def test_turns_that_are_neighbours_in_time_count_fit_by_fit(address: Path) -> None:
    """One side's first turn has no steady step; a second fit, as of another fold, begins anew."""
    turns: list[TurnsSoFar] = []

    def enough(given: TurnsSoFar) -> bool:
        turns.append(given)
        return False

    def train(side: int) -> None:
        for _ in "ab":
            mine = baton(address, side)
            mine.join()
            for number in range(3):
                steady = side == 1 or number > 0
                mine.pass_on(replace(TURN, whole_ns=number) if steady else None)
            mine.leave()

    with Referee(address, steps=3, enough=enough):
        at_once(lambda: train(0), lambda: train(1))

    assert [len(after) for _, after in turns] == [0, 1, 2] * 2
    for side in turns[-1]:
        assert [turn.whole_ns for turn in side] == [1, 2]


def test_enough_turns_end_the_pair(address: Path) -> None:
    """After two of each side, both wait until whoever launched them ends them."""
    turns: list[TurnsSoFar] = []

    def enough(given: TurnsSoFar) -> bool:
        turns.append(given)
        return len(given[1]) == 2

    def train(side: int) -> None:
        mine = baton(address, side)
        mine.join()
        for number in range(5):
            mine.pass_on(TurnTime(steps=10, steady=9, steady_ns=1.0 + side, whole_ns=number))

    with Referee(address, steps=3, enough=enough) as referee:
        for side in (0, 1):
            threading.Thread(target=train, args=(side,), daemon=True).start()
        until(lambda: referee.settled)

    assert [len(given[0]) for given in turns] == [1, 2]
    assert [turn.steady_ns for turn in turns[-1][1]] == [2.0, 2.0]


def test_a_fit_inside_of_a_fit_trains_without_turns(address: Path, referee: Referee) -> None:
    """It cannot wait for the end of the one that waits for it."""
    del referee
    inner: list[object] = []

    def nested() -> None:
        outer = baton(address, 0)
        outer.join()
        inner.append(baton(address, 0).join())
        outer.leave()

    at_once(nested, lambda: fit(baton(address, 1), 3, list))

    assert inner == [None]


def test_a_refusal_reaches_whoever_launched_it(address: Path, referee: Referee) -> None:
    """With its reason."""
    baton(address, 1).refuse("two ranks")

    until(lambda: referee.refused)
    assert referee.refused == {1: "two ranks"}


def never_begins(_: Baton, referee: Referee) -> None:
    """Its process ended before."""
    referee.gone(0)


def leaves_its_connection_open(mine: Baton, referee: Referee) -> None:
    """A worker that it forked still holds it."""
    mine.join()
    referee.gone(0)


def hangs_up(mine: Baton, _: Referee) -> None:
    """After a part of its turn."""
    mine.join()
    mine._connection.close()


@pytest.mark.parametrize("ends", [never_begins, leaves_its_connection_open, hangs_up])
def test_a_side_whose_process_has_ended_is_not_waited_for(
    ends: Callable[[Baton, Referee], None], address: Path, referee: Referee
) -> None:
    """The other fit trains alone."""
    seen: list[int] = []
    dead = baton(address, 0)

    at_once(lambda: ends(dead, referee), lambda: fit(baton(address, 1), 4, lambda: seen.append(1)))
    dead.close()

    assert seen == [1] * 4
    assert referee.passed == [0, 0]


def test_a_side_that_dies_while_it_waits_gives_no_second_turn(
    address: Path, referee: Referee
) -> None:
    """The other one is told of every turn once: it stays in step with the referee."""
    del referee
    turns: list[Turn | None] = []
    dead, joined = baton(address, 1), threading.Event()

    def dies() -> None:
        joined.wait(PATIENCE_S)
        hang_up(dead)

    def trains() -> None:
        mine = baton(address, 0)
        turns.append(mine.join())
        joined.set()
        turns.extend(mine.pass_on() for _ in range(3))
        mine.leave()

    at_once(dead.join, dies, trains)

    assert None not in turns
    assert len(turns) == 4


def test_without_a_referee_a_fit_trains_alone(address: Path) -> None:
    """Nothing is raised, and nothing is waited for."""
    seen: list[int] = []

    assert fit(baton(address, 0), 4, lambda: seen.append(0)) is None
    assert seen == [0] * 4


def test_when_the_referee_goes_both_fits_go_on(address: Path) -> None:
    """They end their steps; nobody hangs."""
    seen: list[int] = []
    begun = threading.Event()

    def step() -> None:
        begun.set()
        seen.append(1)

    def goes() -> None:
        with Referee(address, steps=1):
            assert begun.wait(PATIENCE_S)

    def train(side: int) -> None:
        until(address.exists)
        fit(baton(address, side), 1000, step)

    at_once(goes, lambda: train(0), lambda: train(1))

    assert len(seen) == 2000


def test_a_process_finds_its_place_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written for it is what it reads; without it there is none."""
    assert this_participant() is None
    place = Participant(address="/tmp/x", side=1, dirpath="runs/after-1")  # noqa: S108 nothing is opened
    for name, value in place.variable().items():
        monkeypatch.setenv(name, value)

    assert this_participant() == place
    monkeypatch.setenv(VARIABLE, "yes, please")
    assert this_participant() is None
