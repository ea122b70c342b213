"""How long does a step take, cold and steady, and which of several is the fastest?

Candidates are timed in turns, one call each, in an order that is reversed every round, so that a
machine that slows down slows all of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from trainperf.benchmark.memory import peak_memory
from trainperf.benchmark.parity import StepResult, result_of, seeded
from trainperf.benchmark.results import BenchmarkComparison, StepBenchmark, Versus
from trainperf.benchmark.timing import Clock, median_and_iqr, quiet, seconds_of, synchronised_clock
from trainperf.benchmark.verdict import ratio_interval, verdict_of
from trainperf.core.errors import ConfigError


Batch = TypeVar("Batch")

_SEED = 0
_NOISY = 0.10
"""IQR over median from which a measurement is noisy; `torch.utils.benchmark` warns there too."""
_SHORT_S = 1e-4
"""Below this, reading a synchronised clock is no longer small beside the call."""


def benchmark_step(
    fn: Callable[[Batch], object], batch: Batch, warmup: int = 5, repeat: int = 30, calls: int = 1
) -> StepBenchmark:
    """Time *fn(batch)*: its first call alone, *warmup* calls in all left out, *repeat* timed.

    Seconds of the host clock with the device idle at both ends, mean of *calls* calls each (more
    than one for functions shorter than 0.1 ms).  A training step trains: its state moves on.
    """
    _check(warmup, repeat, calls)
    taken = _Taken(name=getattr(fn, "__name__", "step"), call=partial(fn, batch), calls=calls)
    with quiet():
        _warm_up(taken, warmup, synchronised_clock)
        taken.steady_s += [seconds_of(taken.call, calls, synchronised_clock) for _ in range(repeat)]
    return _benchmark(taken)


def compare(
    fns: Mapping[str, Callable[[Batch], object]],
    batch: Batch,
    warmup: int = 5,
    repeat: int = 30,
    calls: int = 1,
    tolerance: float = 0.01,
) -> BenchmarkComparison:
    """Time several functions in turns; the first is the one the others are measured against.

    Their warm-ups draw from the same seed, and *tolerance* is the largest relative difference of
    the results (loss or output) of the first and the last warm-up call that counts as the same.
    Training steps therefore start from equal weights, and must not share a model or an optimizer.
    """
    _check(warmup, repeat, calls)
    if len(fns) < 2:
        raise ConfigError(
            f"{len(fns)} functions: compare() needs two; use benchmark_step() for one"
        )
    taken = [_Taken(name=name, call=partial(fn, batch), calls=calls) for name, fn in fns.items()]
    with quiet():
        for each in taken:
            _warm_up(each, warmup, synchronised_clock)
        for turn in range(repeat):
            for each in taken if turn % 2 == 0 else reversed(taken):
                each.steady_s.append(seconds_of(each.call, calls, synchronised_clock))
    baseline = taken[0]
    return BenchmarkComparison(
        steps=tuple(_benchmark(each) for each in taken),
        versus=tuple(_versus(baseline, each, tolerance) for each in taken[1:]),
        tolerance=tolerance,
    )


@dataclass(slots=True, kw_only=True)
class _Taken:
    """One candidate, and what was measured of it so far."""

    name: str
    call: Callable[[], object]
    calls: int
    warmup_s: list[float] = field(default_factory=list)
    steady_s: list[float] = field(default_factory=list)
    outcomes: list[StepResult | None] = field(default_factory=list)


def _warm_up(taken: _Taken, warmup: int, clock: Clock) -> None:
    """The calls that do not count; the results of the first and the last are kept for parity."""
    kept: list[object] = []
    with seeded(_SEED):
        for at in range(warmup):
            taken.warmup_s.append(seconds_of(lambda: kept.append(taken.call()), 1, clock))
            returned = kept.pop()
            if at in {0, warmup - 1}:
                taken.outcomes.append(result_of(returned))
            del returned  # its graph must not live during the next call


def _benchmark(taken: _Taken) -> StepBenchmark:
    steady = tuple(taken.steady_s)
    median, iqr = median_and_iqr(steady)
    return StepBenchmark(
        name=taken.name,
        cold_s=taken.warmup_s[0],
        warmup_s=tuple(taken.warmup_s),
        steady_s=steady,
        median_s=median,
        iqr_s=iqr,
        calls=taken.calls,
        first_loss=_loss(taken.outcomes[0]),
        warmed_loss=_loss(taken.outcomes[-1]),
        memory=peak_memory(taken.call),
        warnings=_warnings(median, iqr, taken.calls),
    )


def _warnings(median_s: float, iqr_s: float, calls: int) -> tuple[str, ...]:
    said = []
    if iqr_s > _NOISY * median_s:
        said.append(
            f"noisy: IQR is {iqr_s / median_s:.0%} of the median (more than {_NOISY:.0%}); "
            "close other programs, or use a larger repeat"
        )
    if median_s * calls < _SHORT_S:
        said.append(
            "short: less than 0.1 ms between two readings of the clock, so reading it counts; "
            "use calls=100"
        )
    return tuple(said)


def _versus(baseline: _Taken, other: _Taken, tolerance: float) -> Versus:
    ratios = [a / b for a, b in zip(baseline.steady_s, other.steady_s, strict=True)]
    speedup, low, high = ratio_interval(ratios)
    comparable, difference = _difference(baseline.outcomes, other.outcomes)
    same = difference is None or difference <= tolerance
    return Versus(
        name=other.name,
        baseline=baseline.name,
        speedup=speedup,
        low=low,
        high=high,
        difference=None if difference is None or math.isinf(difference) else difference,
        finite=difference is None or not math.isinf(difference),
        verdict=verdict_of(low, high, comparable=comparable, same=same),
    )


def _difference(
    these: Sequence[StepResult | None], those: Sequence[StepResult | None]
) -> tuple[bool, float | None]:
    """Whether the results can be compared, and the largest difference if there are any."""
    found: list[float] = []
    for one, other in zip(these, those, strict=True):
        if one is None and other is None:
            continue
        difference = one.difference(other) if one and other else None
        if difference is None:
            return False, None
        found.append(difference)
    return True, max(found, default=None)


def _loss(outcome: StepResult | None) -> float | None:
    return outcome.loss if outcome else None


def _check(warmup: int, repeat: int, calls: int) -> None:
    if warmup < 1:
        raise ConfigError(f"warmup={warmup}: the first call is never steady; use at least 1")
    if repeat < 6:
        raise ConfigError(f"repeat={repeat}: too few to know the median's interval; try 30")
    if calls < 1:
        raise ConfigError(f"calls={calls}: at least one call has to be timed; use 1")
