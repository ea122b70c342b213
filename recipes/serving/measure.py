"""The whole recipe: capacities, curves over the arrival rate, cases."""

import time
from collections.abc import Sequence

from recipes.cases.case import Plot, PlotLine, RecipeRun
from recipes.cases.measuring import machine
from recipes.cases.processor import threads
from recipes.serving.claims import Effort, capacities, cases, summary
from recipes.serving.model import LAYERS, LONGEST, SHORTEST, WIDTH
from recipes.serving.points import POLICIES, Bench, Point, points_table


RATES = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 1.1)
"""Of arrivals, as shares of what the batcher can answer: the last one is too much."""

SMALL = Effort(paired_s=0.1, round_s=0.05, rounds=6, tail_s=0.2, point_s=0.05, rates=RATES[::3])
FULL = Effort(paired_s=3.0, round_s=1.0, rounds=7, tail_s=20.0, point_s=1.2, rates=RATES)

ABOUT = (
    f"A transformer of {LAYERS} layers, {WIDTH} wide, classifies sequences of {SHORTEST} to "
    f"{LONGEST} tokens that arrive one by one, at random moments. `DynamicBatcher` gathers them. "
    "The load is an open loop: arrivals are drawn beforehand and wait for no answer, and every "
    "latency begins at the intended arrival."
)


def measured(*, small: bool) -> RecipeRun:
    """Measure everything, one thread per operator; *small* is for tests and proves nothing."""
    begun_s = time.perf_counter()
    effort = SMALL if small else FULL
    with threads(1):
        bench = Bench()
        capacity = capacities(bench, effort.point_s)
        points = [
            bench.point(policy, share * capacity.batched_per_s, effort.point_s, seed)
            for seed, share in enumerate(effort.rates)
            for policy in POLICIES
        ]
        decided = tuple(cases(bench, capacity, effort))
    return RecipeRun(
        recipe="serving",
        title="Dynamic batching: throughput against latency",
        about=f"{ABOUT} {summary(capacity)}",
        command="python -m recipes.serving" + (" --size small" if small else ""),
        machine=machine(),
        took_s=time.perf_counter() - begun_s,
        cases=decided,
        tables=(points_table(points),),
        plots=tuple(_plots(points)),
    )


def _plots(points: Sequence[Point]) -> list[Plot]:
    plots = [
        Plot(
            title=f"p{per_cent} of the latency over the arrival rate",
            lines=tuple(
                PlotLine(name=name, points=_latencies(points, name, per_cent)) for name in _NAMES
            ),
            across="arrivals",
            up=f"p{per_cent}",
            across_unit="1/s",
            log_up=True,
        )
        for per_cent in (50, 99)
    ]
    answered = [
        PlotLine(name=name, points=tuple((each.rate_per_s, each.load.per_s) for each in mine))
        for name in _NAMES
        if (mine := [point for point in points if point.policy.name == name])
    ]
    plots.append(
        Plot(
            title="Answers over the arrival rate",
            lines=tuple(answered),
            across="arrivals",
            up="answered",
            across_unit="1/s",
            up_unit="1/s",
        )
    )
    return plots


_NAMES = tuple(policy.name for policy in POLICIES)


def _latencies(
    points: Sequence[Point], name: str, per_cent: int
) -> tuple[tuple[float, float], ...]:
    mine = [
        (point.rate_per_s, point.latency_s(per_cent))
        for point in points
        if point.policy.name == name
    ]
    return tuple((rate, latency_s) for rate, latency_s in mine if latency_s is not None)
