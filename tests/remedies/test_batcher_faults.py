"""Dynamic batching under injected faults: no request is lost, none is answered twice or wrongly."""

import asyncio
import queue
import random
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from support.own_thread import in_own_thread
from support.planted_loop import PlantedLoop, turns

from trainperf.remedies import (
    BatcherClosedError,
    BatcherFullError,
    BatchFailedError,
    DynamicBatcher,
)


SIZE, PENDING, KEYS = 16, 64, 3
AT_ONCE = 400
"""Callers at a time: many more than the queue has places."""


class BatchError(Exception):
    """The whole batch is refused; carries its requests."""


class RequestError(Exception):
    """One request is refused; carries it."""


def faulty(chance: random.Random) -> Any:
    """A model function that breaks every rule at times, and checks those that the batcher keeps."""

    def run(requests: list[int]) -> Any:
        assert 1 <= len(requests) <= SIZE
        assert len({request % KEYS for request in requests}) == 1
        assert requests == sorted(requests)
        fault = chance.random()
        if fault < 0.04:
            raise BatchError(*requests)
        if fault < 0.06:
            return requests[1:]
        if fault < 0.08:
            raise StopIteration
        return [-request if request % 41 else RequestError(request) for request in requests]

    return run


async def call(  # noqa: PLR0911 an end each
    batcher: "DynamicBatcher[int, int]", request: int, chance: float
) -> str:
    """What becomes of a request; wrong is whatever it was not given cause for."""
    try:
        if chance < 0.1:
            answer = await asyncio.wait_for(batcher.submit(request), chance / 50)
        else:
            answer = await batcher.submit(request, wait=chance < 0.8)
    except BatchError as error:
        return "failed" if request in error.args else "wrong"
    except RequestError as error:
        return "failed alone" if error.args == (request,) else "wrong"
    except BatchFailedError:
        return "failed"
    except BatcherFullError:
        return "turned away" if chance >= 0.8 else "wrong"
    except asyncio.TimeoutError:
        return "timed out" if chance < 0.1 else "wrong"
    except asyncio.CancelledError:
        return "cancelled"
    return "answered" if answer == -request else "wrong"


async def under_faults(number: int, seed: int) -> Counter[str]:
    """So many requests, some of them cancelled at any moment; how many ended in which way."""
    chance = random.Random(seed)  # noqa: S311 faults, no secret
    ended: Counter[str] = Counter()
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: unhandled.append(told))
    batcher = DynamicBatcher(
        faulty(random.Random(seed + 1)),  # noqa: S311
        max_batch_size=SIZE,
        max_wait_s=0.001,
        max_pending=PENDING,
        key=lambda request: request % KEYS,
    )
    async with batcher:
        for first in range(0, number, AT_ONCE):
            callers = []
            for request in range(first, min(first + AT_ONCE, number)):
                callers.append(asyncio.ensure_future(call(batcher, request, chance.random())))
                if chance.random() < 0.05:
                    chance.choice(callers).cancel()
                if chance.random() < 0.1:
                    await asyncio.sleep(0)
                assert batcher.pending <= PENDING
            told = await asyncio.gather(*callers, return_exceptions=True)
            # A task that is cancelled before its first step never enters `call`.
            ended.update("cancelled" if isinstance(each, BaseException) else each for each in told)
        assert batcher.pending == 0
    assert unhandled == []
    return ended


@pytest.mark.parametrize(
    "number", [3_000, pytest.param(100_000, marks=pytest.mark.slow)], ids=["quick", "whole"]
)
def test_no_request_is_lost_under_faults(number: int) -> None:
    """Batches fail, callers leave or time out, the queue is full: each request ends once."""

    async def scenario() -> Counter[str]:
        return await asyncio.wait_for(under_faults(number, seed=number), 300)

    ended = in_own_thread(lambda: asyncio.run(scenario()))

    assert ended.total() == number
    assert ended["wrong"] == 0
    every = {"answered", "failed", "failed alone", "turned away", "cancelled", "timed out"}
    assert set(ended) == every
    assert ended["answered"] > number / 4


# -- any schedule --------------------------------------------------------------------------------

Action = tuple[str, int]

ACTIONS = some.one_of(
    some.tuples(some.just("submit"), some.integers(0, 3)),
    some.tuples(some.just("submit now"), some.integers(0, 3)),
    some.tuples(some.just("cancel"), some.integers(0, 30)),
    some.tuples(some.just("wait"), some.integers(0, 3)),
    some.tuples(some.just("finish"), some.integers(0, 3)),
    some.tuples(some.just("turn"), some.integers(1, 3)),
)
VERDICTS = ("fine", "raises", "forgets", "fine")


class Scheduled:
    """A model whose batches end when and how a schedule says; they are numbered from 0."""

    def __init__(self) -> None:
        self.verdicts: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.batches: list[list[tuple[int, int]]] = []
        self.ended_as: list[str] = []

    def __call__(self, requests: list[tuple[int, int]]) -> list[int]:
        """The serial numbers of the requests, negative."""
        self.batches.append(list(requests))
        verdict = self.verdicts.get(timeout=60)
        self.ended_as.append(verdict)
        if verdict == "raises":
            raise BatchError(*requests)
        answers = [-serial for serial, _ in requests]
        return answers[1:] if verdict == "forgets" else answers


async def play(schedule: list[Action], loop: PlantedLoop) -> tuple[list[Any], Scheduled, set[int]]:
    """The outcome of each request, the model, and which callers were cancelled."""
    model = Scheduled()
    batcher = DynamicBatcher(
        model, max_batch_size=2, max_wait_s=2.0, max_pending=3, key=lambda request: request[1]
    )
    callers: list[asyncio.Task[int]] = []
    cancelled: set[int] = set()
    async with batcher:
        for action, amount in schedule:
            if action.startswith("submit"):
                coming = batcher.submit((len(callers), amount % 2), wait=action == "submit")
                callers.append(asyncio.ensure_future(coming))
            elif action == "cancel" and amount < len(callers) and callers[amount].cancel():
                cancelled.add(amount)
            elif action == "finish":
                model.verdicts.put(VERDICTS[amount])
            loop.now_s += amount if action == "wait" else 0
            await turns(amount if action == "turn" else 0)
            assert batcher.pending <= 3
        await turns(3)  # what was submitted in the last moment is accepted, or waits for a place
        for _ in range(len(callers) + 1):
            model.verdicts.put("fine")
    return await asyncio.gather(*callers, return_exceptions=True), model, cancelled


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(some.lists(ACTIONS, max_size=40))
def test_any_schedule_ends_every_request_once_and_rightly(schedule: list[Action]) -> None:
    """By its own answer, its own batch's error, its own cancellation, or a refusal."""
    loop = PlantedLoop()
    try:
        ended, model, cancelled = in_own_thread(
            lambda: loop.run_until_complete(play(schedule, loop))
        )
    finally:
        loop.close()

    computed = [serial for batch in model.batches for serial, _ in batch]
    assert len(computed) == len(set(computed))
    for batch in model.batches:
        assert 1 <= len(batch) <= 2
        assert len({key for _, key in batch}) == 1
    for serials in in_order_of_keys(model.batches):
        assert serials == sorted(serials)
    of_request = {
        serial: number for number, batch in enumerate(model.batches) for serial, _ in batch
    }
    for serial, outcome in enumerate(ended):
        verdict = model.ended_as[of_request[serial]] if serial in of_request else None
        if isinstance(outcome, asyncio.CancelledError):
            assert serial in cancelled
        elif isinstance(outcome, BatcherFullError | BatcherClosedError):
            assert verdict is None
        elif isinstance(outcome, BatchError):
            assert verdict == "raises"
            assert serial in [number for number, _ in outcome.args]
        elif isinstance(outcome, BatchFailedError):
            assert verdict == "forgets"
        else:
            assert (verdict, outcome) == ("fine", -serial)


def in_order_of_keys(batches: list[list[tuple[int, int]]]) -> Iterator[list[int]]:
    """The serial numbers of each key's requests, as they were started."""
    requests = sorted((request for batch in batches for request in batch), key=lambda each: each[1])
    for _, group in groupby(requests, key=lambda each: each[1]):
        yield [serial for serial, _ in group]
