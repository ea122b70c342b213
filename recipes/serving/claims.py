"""Claims about dynamic batching, each a case with a verdict for this machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from recipes.cases.case import Case, MeasuredRow, PublishedFigure
from recipes.cases.measuring import paired
from recipes.cases.verdicts import Expectation, Judgement, factor_of, verdict
from recipes.serving.load import LoadResult, percentile, poisson, run, waiting_client
from recipes.serving.model import requests
from recipes.serving.points import ALONE, DYNAMIC, FIXED, POLICIES, SIZE, WAIT_S, Bench
from trainperf.benchmark import Sweep, sweep
from trainperf.benchmark.steps import ratio_interval
from trainperf.core.formatting.units import count, duration, plural
from trainperf.core.stats.bootstrap import resamples


LOADED, RARE = 0.7, 0.05
"""Arrival rates of the cases, as shares of what the batcher can answer."""

ALLOWED = 3
"""Times of a batch that the slowest hundredth may take in addition to the wait: the batch that
runs when a request comes, the one that is due before its own, and its own."""

BLOCKS = 32
"""Stretches of a long load; neighbouring requests share their batches and their stalls."""

RESAMPLES = 1000

LEAST = 20
"""Requests of a round, about: a percentile of fewer says nothing, however slow the machine is."""

CHANGE = (
    "- scores = model(request)",
    f"+ async with DynamicBatcher(run, max_batch_size={SIZE}, max_wait_s={WAIT_S}) as batcher:",
    "+     scores = await batcher.submit(request)",
)


NO_QUEUE = "no finding is about a queue, and a load of requests decides it below."

OPEN_LOOP = PublishedFigure(
    figure="the same service with the same pauses: p99 1 ms to a client that waits for its "
    "answers, 195 ms to requests sent on schedule, on two Xeon E5-2697 v2",
    source="https://0x3f.blog/posts/first-things-first-coordinated-omission/",
    differs="theirs is a simulated service that pauses; ours is a model whose batches queue",
)

TRITON = PublishedFigure(
    figure="NVIDIA's Triton server: about 73 inferences/s of an Inception model become 272 with "
    "its dynamic batcher and eight concurrent requests, at a latency that hardly changes",
    source="https://github.com/triton-inference-server/server/blob/main/docs/user_guide/"
    "optimization.md",
    differs="a GPU, an image model, a server with its own protocol, and clients that wait for each "
    "answer; here a small transformer and no network",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long is measured."""

    paired_s: float
    round_s: float
    rounds: int
    """At least 6, or there is no interval."""
    tail_s: float
    """Of the load whose slowest hundredth is judged."""
    point_s: float
    """Of every point of the curves."""
    rates: tuple[float, ...]
    """Of the curves, as shares of what the batcher can answer."""

    def seconds(self, rate_per_s: float) -> float:
        """Of a round at this rate."""
        return max(self.round_s, LEAST / rate_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacities:
    """What the machine can answer per second, and the report that says which batch to take."""

    alone_per_s: float
    batched_per_s: float
    sizes: Sweep


def capacities(bench: Bench, seconds: float) -> Capacities:
    """Batches of every size by themselves, then both ways to serve with a queue never empty."""
    sizes = sweep(bench.served, lambda size, _: requests(size), (1, 2, 4, 8, SIZE, 2 * SIZE))
    return Capacities(
        alone_per_s=bench.capacity(ALONE, seconds),
        batched_per_s=bench.capacity(DYNAMIC, seconds),
        sizes=sizes,
    )


def cases(bench: Bench, capacity: Capacities, effort: Effort) -> Iterator[Case]:
    """All of them, as they are measured."""
    yield _throughput(bench, capacity, effort)
    yield _tail(bench, capacity, effort)
    yield from _rare(bench, capacity, effort)
    yield _omission(bench, effort)


def _throughput(bench: Bench, capacity: Capacities, effort: Effort) -> Case:
    def together(batch: list[torch.Tensor]) -> torch.Tensor:
        return bench.served(batch)

    def alone(batch: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([bench.served([request]) for request in batch])

    measured = paired(
        {f"{SIZE} requests one by one": alone, f"{SIZE} requests in a batch": together},
        requests(SIZE),
        seconds=effort.paired_s,
    )
    return Case(
        name="throughput",
        claim=f"A batch of {SIZE} short requests takes less time than the same requests one by one",
        before=tuple(str(capacity.sizes).splitlines()),
        before_note="no finding is about this; `trainperf.benchmark.sweep` decides it:",
        change=CHANGE,
        measured=measured,
        published=TRITON,
        **verdict(measured[1], "faster", "one request already keeps the core busy"),
    )


def _tail(bench: Bench, capacity: Capacities, effort: Effort) -> Case:
    batch_s = _batch_s(capacity)
    limit_s = ALLOWED * batch_s + WAIT_S
    rate = LOADED * capacity.batched_per_s
    seconds = max(effort.tail_s, BLOCKS * LEAST / rate)
    load = bench.point(DYNAMIC, rate, seconds, seed=0).load
    name = f"p99 at {LOADED:.0%} of the load it can answer".replace("%", " %")
    row = tail_row(name, load, limit_s)
    return Case(
        name="tail",
        claim=(
            f"At {LOADED:.0%} load the slowest hundredth takes less than {ALLOWED} batches and the "
            "wait"
        ).replace("%", " %"),
        before_note=NO_QUEUE,
        change=CHANGE,
        measured=(
            MeasuredRow(what="a full batch", value=batch_s),
            MeasuredRow(what="limit", value=limit_s, note=f"{ALLOWED} batches + the wait"),
            row,
            MeasuredRow(what="arrivals", value=rate, unit="1/s"),
        ),
        **_judged(row, "faster", "the limit is {} the p99"),
    )


def _rare(bench: Bench, capacity: Capacities, effort: Effort) -> Iterator[Case]:
    """Three ways to serve a load at which requests hardly ever meet."""
    rate = RARE * capacity.batched_per_s
    points = _in_turns(bench, rate, effort)
    middle = {policy.name: [values[50] for values in points[policy.name]] for policy in POLICIES}
    last = {policy.name: [values[99] for values in points[policy.name]] for policy in POLICIES}
    arrivals = MeasuredRow(what="arrivals", value=rate, unit="1/s")
    alone = _median_row(f"{ALONE.name}, p50", middle[ALONE.name])
    row = row_of(f"{DYNAMIC.name}, p50", middle[DYNAMIC.name], alone.what, middle[ALONE.name])
    yield Case(
        name="rare requests",
        claim="Where requests rarely meet, dynamic batching only adds its wait",
        before_note=NO_QUEUE,
        change=CHANGE,
        measured=(alone, row, arrivals),
        **_judged(row, "slower", "one by one takes {} the time"),
    )
    fixed = _median_row(f"{FIXED.name}, p99", last[FIXED.name])
    row = row_of(f"{DYNAMIC.name}, p99", last[DYNAMIC.name], fixed.what, last[FIXED.name])
    yield Case(
        name="fixed batches",
        claim=f"A batch that waits for {SIZE} requests makes the first wait for the last; a "
        "time limit ends that",
        before_note=NO_QUEUE,
        change=("- wait until the batch is full", f"+ max_wait_s={WAIT_S}"),
        measured=(fixed, row, arrivals),
        **_judged(row, "faster", "fixed batches take {} the time"),
    )


def _omission(bench: Bench, effort: Effort) -> Case:
    """One run, read in two ways: from the intended arrival, and as the client sees it."""
    sustained = _waiting(bench, [0.0] * (10 * LEAST)).per_s
    rate = LOADED * sustained
    true_s, as_client_s = [], []
    for seed in range(effort.rounds):
        load = _waiting(bench, poisson(rate, effort.seconds(rate), seed))
        true_s.append(percentile(load.latencies_s, 99) or 0.0)
        as_client_s.append(percentile(load.as_client_s, 99) or 0.0)
    true = _median_row("p99 from the intended arrival", true_s)
    sends = MeasuredRow(what="what such a client can send", value=sustained, unit="1/s")
    row = row_of("p99 from the moment of sending", as_client_s, true.what, true_s)
    return Case(
        name="coordinated omission",
        claim="A client that waits for each answer before it sends the next reports a p99 that is "
        "too low",
        before_note=NO_QUEUE,
        published=OPEN_LOOP,
        change=("- latency = now - sent", "+ latency = now - intended"),
        measured=(true, row, MeasuredRow(what="arrivals", value=rate, unit="1/s"), sends),
        **_judged(row, "faster", "the true p99 is {} the reported one"),
    )


def _waiting(bench: Bench, arrivals: Sequence[float]) -> LoadResult:
    async def scenario() -> LoadResult:
        async with bench.batcher(ALONE) as batcher:
            return await waiting_client(bench.sender(batcher), arrivals)

    return run(scenario())


def _in_turns(bench: Bench, rate: float, effort: Effort) -> dict[str, list[dict[int, float]]]:
    """p50 and p99 of each policy and round, the policies in turns, on the same arrivals."""
    points: dict[str, list[dict[int, float]]] = {policy.name: [] for policy in POLICIES}
    for seed in range(effort.rounds):
        for policy in POLICIES if seed % 2 == 0 else reversed(POLICIES):
            point = bench.point(policy, rate, effort.seconds(rate), seed)
            points[policy.name].append({at: point.latency_s(at) or 0.0 for at in (50, 99)})
    return points


def row_of(
    what: str, values: Sequence[float], against: str, others: Sequence[float]
) -> MeasuredRow:
    """A row whose ratio, round by round, is that of *others* to its own values."""
    ratios = [other / value for other, value in zip(others, values, strict=True) if value > 0]
    ratio, low, high = ratio_interval(ratios)
    return MeasuredRow(
        what=what,
        value=median(values),
        ratio=ratio,
        low=low,
        high=high,
        against=against,
        rounds=len(ratios),
    )


def tail_row(what: str, load: LoadResult, limit_s: float) -> MeasuredRow:
    """p99 of all of a load, and how many times the limit is of it.

    The interval is a bootstrap of whole blocks: a round of its own for each would show what a
    usual second is like, and leave out the stall that comes every ten.
    """
    latencies_s = np.asarray(load.latencies_s)
    worst_s = float(np.percentile(latencies_s, 99))
    block = max(1, len(latencies_s) // BLOCKS)
    drawn_s = [
        float(np.percentile(latencies_s[places], 99))
        for places in resamples(len(latencies_s), block, RESAMPLES)
    ]
    least_s, most_s = (float(end) for end in np.percentile(drawn_s, (2.5, 97.5)))
    return MeasuredRow(
        what=what,
        value=worst_s,
        ratio=limit_s / worst_s,
        low=limit_s / most_s,
        high=limit_s / least_s,
        against="limit",
        rounds=len(latencies_s) // block,
        note=f"{plural(load.sent, 'request')}, {count(load.refused)} refused; rounds are blocks",
    )


def _judged(row: MeasuredRow, expected: Expectation, words: str) -> Judgement:
    """The verdict on a row, its ratio in words about latencies."""
    judgement = verdict(row, expected)
    if row.low is None or row.high is None:
        return judgement
    reason = f"{words.format(factor_of(row.ratio or 0.0))} (95 % CI {row.low:.3g}–{row.high:.3g})"
    return Judgement(
        verdict=judgement["verdict"], reason=reason, decided_by=judgement["decided_by"]
    )


def _median_row(what: str, values: Sequence[float]) -> MeasuredRow:
    return MeasuredRow(what=what, value=median(values))


def _batch_s(capacity: Capacities) -> float:
    (point,) = (point for point in capacity.sizes.points if point.batch_size == SIZE)
    return point.median_s or 0.0


def summary(capacity: Capacities) -> str:
    """What the machine can answer, in a sentence."""
    return (
        f"With a queue that is never empty: one by one {count(round(capacity.alone_per_s))}/s, "
        f"in batches of {SIZE} {count(round(capacity.batched_per_s))}/s; a full batch takes "
        f"{duration(_batch_s(capacity))}."
    )
