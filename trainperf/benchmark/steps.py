"""Benchmarks of steps: one by itself, cold and steady, or several against a baseline.

Candidates are timed in turns, one call each, in an order that is reversed every round, so that a
machine that slows down slows all of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from trainperf.benchmark.calls import (
    Clock,
    StepResult,
    median_and_iqr,
    peak_memory,
    quiet,
    result_of,
    seconds_of,
    seeded,
    synchronised_clock,
)
from trainperf.benchmark.results import (
    BenchmarkComparison,
    StepBenchmark,
    Versus,
    ratio_interval,
    verdict_of,
)
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
    candidate = _Candidate(
        name=getattr(fn, "__name__", "step"), call=partial(fn, batch), calls=calls
    )
    with quiet():
        _warm_up(candidate, warmup, synchronised_clock)
        candidate.steady_s += [
            seconds_of(candidate.call, calls, synchronised_clock) for _ in range(repeat)
        ]
    return _benchmark(candidate)


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
    candidates = [
        _Candidate(name=name, call=partial(fn, batch), calls=calls) for name, fn in fns.items()
    ]
    with quiet():
        for each in candidates:
            _warm_up(each, warmup, synchronised_clock)
        for turn in range(repeat):
            for each in candidates if turn % 2 == 0 else reversed(candidates):
                each.steady_s.append(seconds_of(each.call, calls, synchronised_clock))
    baseline = candidates[0]
    return BenchmarkComparison(
        steps=tuple(_benchmark(each) for each in candidates),
        versus=tuple(_versus(baseline, each, tolerance) for each in candidates[1:]),
        tolerance=tolerance,
    )


@dataclass(slots=True, kw_only=True)
class _Candidate:
    """One function, and its measurements so far."""

    name: str
    call: Callable[[], object]
    calls: int
    warmup_s: list[float] = field(default_factory=list)
    steady_s: list[float] = field(default_factory=list)
    results: list[StepResult | None] = field(default_factory=list)


def _warm_up(candidate: _Candidate, warmup: int, clock: Clock) -> None:
    """The warm-up calls; keeps the results of the first and the last for parity."""
    returns: list[object] = []
    with seeded(_SEED):
        for at in range(warmup):
            candidate.warmup_s.append(
                seconds_of(lambda: returns.append(candidate.call()), 1, clock)
            )
            returned = returns.pop()
            if at in {0, warmup - 1}:
                candidate.results.append(result_of(returned))
            del returned  # its graph must not live during the next call


def _benchmark(candidate: _Candidate) -> StepBenchmark:
    steady = tuple(candidate.steady_s)
    median, iqr = median_and_iqr(steady)
    return StepBenchmark(
        name=candidate.name,
        cold_s=candidate.warmup_s[0],
        warmup_s=tuple(candidate.warmup_s),
        steady_s=steady,
        median_s=median,
        iqr_s=iqr,
        calls=candidate.calls,
        first_loss=_loss(candidate.results[0]),
        warmed_loss=_loss(candidate.results[-1]),
        memory=peak_memory(candidate.call),
        warnings=_warnings(median, iqr, candidate.calls),
    )


def _warnings(median_s: float, iqr_s: float, calls: int) -> tuple[str, ...]:
    warnings = []
    if iqr_s > _NOISY * median_s:
        warnings.append(
            f"noisy: IQR is {iqr_s / median_s:.0%} of the median (more than {_NOISY:.0%}); "
            "close other programs, or use a larger repeat"
        )
    if median_s * calls < _SHORT_S:
        warnings.append(
            "short: less than 0.1 ms between two clock readings, so the readings themselves count; "
            "use calls=100"
        )
    return tuple(warnings)


def _versus(baseline: _Candidate, other: _Candidate, tolerance: float) -> Versus:
    ratios = [a / b for a, b in zip(baseline.steady_s, other.steady_s, strict=True)]
    speedup, low, high = ratio_interval(ratios)
    comparable, difference = _difference(baseline.results, other.results)
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
    differences: list[float] = []
    for first, second in zip(these, those, strict=True):
        if first is None and second is None:
            continue
        difference = first.difference(second) if first and second else None
        if difference is None:
            return False, None
        differences.append(difference)
    return True, max(differences, default=None)


def _loss(result: StepResult | None) -> float | None:
    return result.loss if result else None


def _check(warmup: int, repeat: int, calls: int) -> None:
    if warmup < 1:
        raise ConfigError(
            f"warmup={warmup}: must be at least 1, because the first call is never steady; try 5"
        )
    if repeat < 6:
        raise ConfigError(
            f"repeat={repeat}: at least 6 are needed for the median's interval; try 30"
        )
    if calls < 1:
        raise ConfigError(f"calls={calls}: must be at least 1; try 1")
