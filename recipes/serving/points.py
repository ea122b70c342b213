"""Ways to serve the model, each under the same load at several arrival rates."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

from recipes.serving.load import LoadResult, Send, open_loop, percentile, poisson, run, saturated
from recipes.serving.model import Served, classifier, requests
from trainperf.core.formatting.table import Table, or_unknown
from trainperf.core.formatting.units import count, duration, share
from trainperf.remedies import DynamicBatcher


SIZE, WAIT_S = 16, 0.005
QUEUE = 256
"""Requests that may be queued; more are turned away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A way to serve: all use the same queue, thread and model."""

    name: str
    max_batch_size: int
    max_wait_s: float


ALONE = Policy(name="one by one", max_batch_size=1, max_wait_s=0.0)
FIXED = Policy(name="fixed batches", max_batch_size=SIZE, max_wait_s=3600.0)
"""Of `SIZE`: it waits until they are full, and at the end for nothing more."""
DYNAMIC = Policy(name="DynamicBatcher", max_batch_size=SIZE, max_wait_s=WAIT_S)
POLICIES = (ALONE, FIXED, DYNAMIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One way to serve under one load."""

    policy: Policy
    rate_per_s: float
    """Of arrivals."""
    load: LoadResult
    batch: float | None
    """Mean size of the batches."""

    def latency_s(self, per_cent: int) -> float | None:
        """A percentile of the latencies."""
        return percentile(self.load.latencies_s, per_cent)


class Bench:
    """The model and its requests, served in one way after the other."""

    def __init__(self) -> None:
        self.served = Served(classifier())
        self.requests = requests(512)
        with torch.inference_mode():
            self.served(self.requests[:SIZE])

    def batcher(self, policy: Policy) -> "DynamicBatcher[torch.Tensor, torch.Tensor]":
        """A batcher that serves in this way."""
        return DynamicBatcher(
            self.served,
            max_batch_size=policy.max_batch_size,
            max_wait_s=policy.max_wait_s,
            max_pending=QUEUE,
        )

    def sender(self, batcher: "DynamicBatcher[torch.Tensor, torch.Tensor]") -> Send:
        """Sends to it; a full queue turns the request away."""

        async def send(number: int) -> object:
            return await batcher.submit(self.requests[number % len(self.requests)], wait=False)

        return send

    def capacity(self, policy: Policy, seconds: float) -> float:
        """Answers per second where there is always a full batch to take."""

        async def scenario() -> float:
            async with self.batcher(policy) as batcher:
                return await saturated(self.sender(batcher), 4 * policy.max_batch_size, seconds)

        return run(scenario())

    def point(self, policy: Policy, rate_per_s: float, seconds: float, seed: int) -> Point:
        """Serve in this way under this load."""
        arrivals = poisson(rate_per_s, seconds, seed)

        async def scenario() -> LoadResult:
            async with self.batcher(policy) as batcher:
                return await open_loop(self.sender(batcher), arrivals, batcher.close)

        self.served.sizes.clear()
        load = run(scenario())
        sizes = self.served.sizes
        return Point(
            policy=policy, rate_per_s=rate_per_s, load=load, batch=fmean(sizes) if sizes else None
        )


HEAD = (
    "served",
    "arrivals",
    "answered",
    "refused",
    "batch",
    "p50",
    "p95",
    "p99",
    "sent late, p99",
)


_NOTES = (
    "Latencies are of answered requests, from the intended arrival.",
    f"Refused: the queue of {QUEUE} was full.",
    "Sent late: by how much the generator itself was behind; it is part of the latency.",
    f"Fixed batches wait for {SIZE} requests.",
    f"DynamicBatcher takes up to {SIZE} and waits {duration(WAIT_S)} at most.",
    "All have one worker thread; the event loop and the generator have the other core.",
)


def points_table(points: Sequence[Point]) -> Table:
    """A row per way and rate."""
    return Table(
        title="Latency and throughput over the arrival rate",
        head=HEAD,
        rows=tuple(map(_row, points)),
        notes=_NOTES,
    )


def _row(point: Point) -> tuple[str, ...]:
    load = point.load
    return (
        point.policy.name,
        f"{count(round(point.rate_per_s))}/s",
        f"{count(round(load.per_s))}/s",
        share(load.refused / load.sent if load.sent else 0.0),
        or_unknown(point.batch, lambda size: f"{size:.1f}"),
        *(or_unknown(point.latency_s(per_cent), duration) for per_cent in (50, 95, 99)),
        or_unknown(percentile(load.late_s, 99), duration),
    )
