"""Dynamic batching under injected faults: no request is lost, none is answered twice or wrongly."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from support.own_thread import in_own_thread

from trainperf.remedies import (
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
