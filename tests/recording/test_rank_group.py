"""Live aggregation's group of ranks: two of them in one process, over a store in memory."""

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch.distributed as dist

from trainperf.recording import rank_group
from trainperf.recording.guard import Guard
from trainperf.recording.rank_group import RankGroup


pytestmark = pytest.mark.real_clock

PATIENCE_S = 30.0


@pytest.fixture
def pair() -> Iterator[list[RankGroup]]:
    """Two ranks that have not begun."""
    store = dist.HashStore()
    groups = [RankGroup(rank, 2, 3, Guard(), lambda: store) for rank in (0, 1)]
    yield groups
    for group in groups:
        if group.started:
            group.close()


def until(condition: Callable[[], object]) -> None:
    """Wait for it."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def begun(pair: list[RankGroup]) -> tuple[RankGroup, RankGroup]:
    """Both ready to send."""
    for group in pair:
        group.begin()
    until(lambda: all(group.idle for group in pair))
    return pair[0], pair[1]


def gathered(group: RankGroup) -> list[list[float]]:
    """What came to rank 0."""
    rows: list[np.ndarray] = []
    until(lambda: (row := group.take()) is not None and not rows.append(row))
    return [list(map(float, row)) for row in rows[0]]


def test_rank_0_gets_a_row_of_every_rank(pair: list[RankGroup]) -> None:
    """Once, and again with the next."""
    first, second = begun(pair)
    for number in (1.0, 2.0):
        until(lambda: first.idle and second.idle)
        first.send(np.full(3, number))
        second.send(np.full(3, -number))
        assert gathered(first) == [[number] * 3, [-number] * 3]
    assert first.take() is None
    assert second.take() is None


def test_what_took_too_long_is_not_shown_and_the_next_is(
    pair: list[RankGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that was stopped for a while is not given up."""
    first, second = begun(pair)
    monkeypatch.setattr(rank_group, "TIMEOUT_S", 0.05)
    first.send(np.ones(3))
    until(lambda: first.waits)
    assert not first.idle
    second.send(np.ones(3))
    until(lambda: first.idle and second.idle)
    assert first.take() is None
    monkeypatch.setattr(rank_group, "TIMEOUT_S", PATIENCE_S)
    first.send(np.ones(3))
    second.send(np.zeros(3))

    assert gathered(first) == [[1.0] * 3, [0.0] * 3]
    assert first.waits == ""


def test_a_rank_that_never_comes_holds_nobody_up(pair: list[RankGroup]) -> None:
    """There is no group, and leaving takes a moment."""
    pair[0].begin()
    time.sleep(0.1)
    before = time.monotonic()
    pair[0].close(PATIENCE_S)

    assert not pair[0].idle
    assert pair[0].waits == "not every rank has come"
    assert time.monotonic() - before < PATIENCE_S


def test_a_rank_that_never_answers_does_not_keep_the_others_from_leaving(
    pair: list[RankGroup],
) -> None:
    """Its gather is left in flight with the thread that waits for it."""
    first, _ = begun(pair)
    first.send(np.ones(3))
    before = time.monotonic()
    first.close(PATIENCE_S)

    assert time.monotonic() - before < PATIENCE_S


def test_a_rank_that_left_ends_the_group_and_is_told(pair: list[RankGroup]) -> None:
    """The files have everything."""
    first, second = begun(pair)
    second.close()
    first.send(np.ones(3))
    until(lambda: first.lost)

    assert first.lost.startswith("a rank, or the job's store, is gone")
    assert not first.idle


def test_without_a_second_connection_to_the_store_there_is_no_group() -> None:
    """As in torch before it could open one: training's own connection is left alone."""
    group = RankGroup(0, 2, 3, Guard(), lambda: None)
    group.begin()
    until(lambda: group.lost)

    assert "second connection" in group.lost
