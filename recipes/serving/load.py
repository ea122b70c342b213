"""Load on a batcher: Poisson arrivals on a fixed schedule, and latencies from the intended arrival.

The schedule is drawn beforehand and never waits for an answer (an open loop), and a latency begins
when its request was *meant* to be sent.  So what a slow server delays counts in full: a generator
that waits for answers sends less while the server is slow, and leaves out the worst latencies
(coordinated omission).
"""

import asyncio
import random
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import TypeVar

from trainperf.remedies import BatcherFullError


T = TypeVar("T")

Send = Callable[[int], Awaitable[object]]
"""Sends the request of a number, and returns with its answer."""


@dataclass(slots=True, kw_only=True)
class LoadResult:
    """What became of the requests of one schedule."""

    sent: int = 0
    refused: int = 0
    """Turned away because the queue was full; they have no latency."""
    latencies_s: list[float] = field(default_factory=list)
    """Of answered requests, from the intended arrival; event loop's clock."""
    as_client_s: list[float] = field(default_factory=list)
    """The same from the moment of sending: what the client itself would have measured."""
    late_s: list[float] = field(default_factory=list)
    """How much later than intended requests were sent."""
    took_s: float = 0.0
    """From the first intended arrival to the last answer."""

    @property
    def per_s(self) -> float:
        """Answers per second."""
        return len(self.latencies_s) / self.took_s if self.took_s else 0.0


def poisson(rate_per_s: float, seconds: float, seed: int) -> list[float]:
    """Arrivals of that rate in so many seconds, from 0; at least one."""
    chance = random.Random(seed)  # noqa: S311 arrivals, no secret
    arrivals = [chance.expovariate(rate_per_s)]
    while arrivals[-1] < seconds:
        arrivals.append(arrivals[-1] + chance.expovariate(rate_per_s))
    return arrivals[:-1] or arrivals


def percentile(values: Sequence[float], per_cent: int) -> float | None:
    """A percentile by linear interpolation; `None` of fewer than two values."""
    if len(values) < 2:
        return None
    return quantiles(values, n=100, method="inclusive")[per_cent - 1]


async def open_loop(
    send: Send, arrivals_s: Sequence[float], finish: Callable[[], Awaitable[None]]
) -> LoadResult:
    """Send every request when it is meant to be sent, whatever became of the others.

    *finish* is called when the last one was sent: a batch that waits to be full would wait for
    ever then.
    """
    loop, result = asyncio.get_running_loop(), LoadResult()
    begin_s = loop.time()

    async def call(number: int, intended_s: float) -> None:
        sent_s = loop.time()
        result.sent += 1
        result.late_s.append(sent_s - intended_s)
        try:
            await send(number)
        except BatcherFullError:
            result.refused += 1
            return
        ended_s = loop.time()
        result.latencies_s.append(ended_s - intended_s)
        result.as_client_s.append(ended_s - sent_s)

    # Those that have ended are let go, as a server does: kept, they would bring on the collections
    # of Python's garbage, each a tenth of a second for everybody, that the percentiles then show.
    calls: set[asyncio.Task[None]] = set()

    def ended(done: "asyncio.Task[None]") -> None:
        if not done.cancelled() and done.exception() is None:
            calls.discard(done)

    for number, at_s in enumerate(arrivals_s):
        # Also without a delay: the answers of others must not wait until the generator has a rest.
        await asyncio.sleep(max(0.0, begin_s + at_s - loop.time()))
        task = asyncio.ensure_future(call(number, begin_s + at_s))
        task.add_done_callback(ended)
        calls.add(task)
    await asyncio.sleep(0)  # the last one is sent in the next turn of the loop
    await finish()
    await asyncio.gather(*calls)
    result.took_s = loop.time() - begin_s
    return result


async def waiting_client(send: Send, arrivals_s: Sequence[float]) -> LoadResult:
    """The same schedule by a client that waits for each answer before it sends the next request."""
    loop, result = asyncio.get_running_loop(), LoadResult()
    begin_s = loop.time()
    for number, at_s in enumerate(arrivals_s):
        await asyncio.sleep(max(0.0, begin_s + at_s - loop.time()))
        sent_s = loop.time()
        await send(number)
        ended_s = loop.time()
        result.sent += 1
        result.late_s.append(sent_s - begin_s - at_s)
        result.latencies_s.append(ended_s - begin_s - at_s)
        result.as_client_s.append(ended_s - sent_s)
    result.took_s = loop.time() - begin_s
    return result


async def saturated(send: Send, callers: int, seconds: float) -> float:
    """Answers per second while so many callers always wait for one."""
    loop = asyncio.get_running_loop()
    begin_s, answered = loop.time(), 0

    async def call(number: int) -> None:
        nonlocal answered
        while loop.time() - begin_s < seconds:
            await send(number)
            answered += 1

    await asyncio.gather(*map(call, range(callers)))
    return answered / (loop.time() - begin_s)


def run(scenario: Coroutine[object, object, T]) -> T:
    """A scenario in an event loop of its own, with fine timers.

    Timers of asyncio's usual selector on Linux are rounded up to the next millisecond, which would
    be part of every latency here.
    """
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    try:
        return loop.run_until_complete(scenario)
    finally:
        loop.close()
