"""Benchmarks of steps, and their results: one by itself, or several against a baseline.

Candidates are timed in turns, one call each, in an order that is reversed every round, so that a
machine that slows down slows all of them.

Results are in SI units; `None` means *not measured*.  Nothing here prints: `str(result)` is the
report.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from statistics import median
from typing import Literal, TypeVar

import msgspec
import torch

from trainperf.benchmark.calls import (
    PeakMemory,
    difference,
    measurement,
    peak_memory,
    result_of,
    seconds_of,
    seeded,
)
from trainperf.benchmark.shown import Shown
from trainperf.core.choice import first_that_holds
from trainperf.core.errors import ConfigError
from trainperf.core.formatting.table import Table, or_unknown
from trainperf.core.formatting.units import Scale, duration, size, times
from trainperf.core.stats.verdict import SpeedVerdict
from trainperf.core.stats.verdict import verdict_of as speed_verdict


Verdict = SpeedVerdict | Literal["loss differs", "not comparable"]
Batch = TypeVar("Batch")

_NOISY = 0.10
"""IQR over median from which a measurement is noisy; `torch.utils.benchmark` warns there too."""
_SHORT_S = 1e-4
"""Below this, reading a synchronised clock is no longer small against the call."""


class StepBenchmark(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """Durations of one function, on the host clock, the device idle at both ends of each."""

    name: str
    warmup_s: tuple[float, ...]
    """The excluded calls: the first with compilation, autotuning and allocation, unless the
    function was called before."""
    steady_s: tuple[float, ...]
    """The calls that count, in order."""
    median_s: float
    iqr_s: float
    calls: int
    """Calls between two readings of the clock; each duration is their mean."""
    memory: PeakMemory

    @property
    def noisy(self) -> bool:
        """Whether the spread is so large that another measurement may differ."""
        return self.iqr_s > _NOISY * self.median_s

    @property
    def warnings(self) -> list[str]:
        """What was not measured, and why durations are not to be trusted."""
        noisy = (
            f"noisy: IQR is {self.iqr_s / self.median_s:.0%} of the median (more than "
            f"{_NOISY:.0%}); close other programs, or use a larger repeat"
        )
        short = (
            "short: less than 0.1 ms between two clock readings, so the readings themselves count; "
            "use calls=100"
        )
        conditions = {
            noisy: self.noisy,
            short: self.median_s * self.calls < _SHORT_S,
            f"peak memory not measured: {self.memory.reason}": bool(self.memory.reason),
        }
        return [warning for warning, applies in conditions.items() if applies]

    def report(self) -> tuple[Sequence[str], Table, Sequence[str]]:
        """As `Shown` has it."""
        return [f"{self.name}: {duration(self.median_s)}"], _table([self]), _notes([self])


class Versus(msgspec.Struct, frozen=True, kw_only=True):
    """One function against the baseline, from calls timed in turns."""

    name: str
    baseline: str
    speedup: float
    """Median over the rounds of baseline time / this one's time; above 1 is faster."""
    low: float | None
    high: float | None
    difference: float | None
    """Largest relative difference of the results (loss or output) of the last warm-up call, same
    seed for both; `None` where nothing was returned, the shapes differ, or one is not finite."""
    verdict: Verdict


class BenchmarkComparison(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """Several functions timed in turns; the first is the baseline."""

    steps: tuple[StepBenchmark, ...]
    versus: tuple[Versus, ...]
    tolerance: float

    def report(self) -> tuple[Sequence[str], Table, Sequence[str]]:
        """As `Shown` has it."""
        answer = [_sentence(each, self.tolerance) for each in self.versus]
        return answer, _table(self.steps), _notes(self.steps)


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Median of the ratios with the 95 % interval of order statistics.

    Exact whatever their distribution, if neighbouring rounds are independent; without ends below
    six ratios, where no order statistics enclose the median that surely.
    """
    ordered, n = sorted(ratios), len(ratios)
    # So many of 2 ** n ways have the median among the k + 1 smallest: a fortieth is left out.
    tails = accumulate(math.comb(n, k) for k in range(n))
    outside = sum(40 * tail <= 2**n for tail in tails)
    ends = (ordered[outside - 1], ordered[n - outside]) if outside else (None, None)
    return median(ordered), *ends


def verdict_of(low: float | None, high: float | None, *, comparable: bool, same: bool) -> Verdict:
    """Verdict on a speed-up between *low* and *high*; a different result is never called faster."""
    if not comparable:
        return "not comparable"
    if not same:
        return "loss differs"
    return "undecided" if low is None or high is None else speed_verdict(low, high)


def _table(steps: Sequence[StepBenchmark]) -> Table:
    rows = tuple(
        (
            step.name,
            duration(step.median_s),
            Scale.of(step.median_s).say(step.iqr_s),
            f"{len(step.steady_s):,}",
            duration(step.warmup_s[0]),
            or_unknown(step.memory.peak_bytes, size),
        )
        for step in steps
    )
    return Table(head=("", "median", "IQR", "calls", "cold", "peak memory"), rows=rows)


def _notes(steps: Sequence[StepBenchmark]) -> list[str]:
    sources = {step.memory.source for step in steps if step.memory.peak_bytes is not None}
    notes = [f"Peak memory: {each}, one call after the timed ones." for each in sorted(sources)]
    return notes + [f"{step.name}: {warning}" for step in steps for warning in step.warnings]


def _sentence(versus: Versus, tolerance: float) -> str:
    """The verdict in a sentence."""
    names = f"{versus.name} against {versus.baseline}: {versus.verdict}"
    if versus.verdict == "not comparable":
        return f"{names} (results of different kinds or shapes)"
    interval = "" if versus.low is None else f" [{versus.low:.2f}–{versus.high:.2f}]"
    is_unknown, apart = versus.difference is None, versus.difference or 0.0
    results = first_that_holds(
        ("a result is not finite", versus.verdict == "loss differs" and is_unknown),
        ("results not compared: no loss or output was returned", is_unknown),
        ("equal results", apart == 0),
        (f"results differ by {apart:.2g} (tolerance {tolerance:g})", True),
    )
    return f"{names}, {times(versus.speedup)} the speed{interval}; {results}"


def benchmark_step(
    fn: Callable[[Batch], object], batch: Batch, warmup: int = 5, repeat: int = 30, calls: int = 1
) -> StepBenchmark:
    """Time *fn(batch)*: its first call alone, *warmup* calls in all left out, *repeat* timed.

    Seconds of the host clock with the device idle at both ends, mean of *calls* calls each (more
    than one for functions shorter than 0.1 ms).  A training step trains: its state moves on.
    """
    name = getattr(fn, "__name__", "step")
    (measured,), _ = _measured({name: partial(fn, batch)}, warmup, repeat, calls)
    return measured


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
    the results (loss or output) of the last warm-up call that counts as the same.
    Training steps therefore start from equal weights, and must not share a model or an optimizer.
    """
    if len(fns) < 2:
        raise ConfigError(
            f"{len(fns)} functions: compare() needs two; use benchmark_step() for one"
        )
    functions = {name: partial(fn, batch) for name, fn in fns.items()}
    steps, results = _measured(functions, warmup, repeat, calls)
    others = zip(steps[1:], results[1:], strict=True)
    versus = tuple(_versus(steps[0], results[0], *other, tolerance) for other in others)
    return BenchmarkComparison(steps=steps, versus=versus, tolerance=tolerance)


_Result = torch.Tensor | None
"""Of the last warm-up call of a function."""


def _versus(
    baseline: StepBenchmark,
    expected: _Result,
    step: StepBenchmark,
    result: _Result,
    tolerance: float,
) -> Versus:
    turns = zip(baseline.steady_s, step.steady_s, strict=True)
    speedup, low, high = ratio_interval([first / second for first, second in turns])
    apart = difference(expected, result)
    finite = apart is None or math.isfinite(apart)
    return Versus(
        name=step.name,
        baseline=baseline.name,
        speedup=speedup,
        low=low,
        high=high,
        difference=apart if finite else None,
        verdict=verdict_of(
            low,
            high,
            comparable=apart is not None or (expected is None and result is None),
            same=apart is None or apart <= tolerance,
        ),
    )


def _measured(
    functions: Mapping[str, Callable[[], object]], warmup: int, repeat: int, calls: int
) -> tuple[tuple[StepBenchmark, ...], list[_Result]]:
    """Functions timed in turns behind their warm-ups."""
    for name, number, least in (("warmup", warmup, 1), ("repeat", repeat, 6), ("calls", calls, 1)):
        if number < least:
            raise ConfigError(f"{name}={number}: must be at least {least}")
    warm = {name: _warmed(call, warmup) for name, call in functions.items()}
    steady_s: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(repeat):
        for name in [*functions][:: -1 if turn % 2 else 1]:
            steady_s[name].append(seconds_of(functions[name], calls))
    steps = tuple(
        StepBenchmark(
            name=name,
            warmup_s=warm[name][0],
            steady_s=tuple(steady_s[name]),
            median_s=float(measurement(steady_s[name]).median),
            iqr_s=float(measurement(steady_s[name]).iqr),
            calls=calls,
            memory=peak_memory(call),
        )
        for name, call in functions.items()
    )
    return steps, [result for _, result in warm.values()]


def _warmed(call: Callable[[], object], warmup: int) -> tuple[tuple[float, ...], _Result]:
    """Durations of the warm-up calls, and the result of the last for parity."""
    seconds: list[float] = []
    returned: list[object] = []
    with seeded(0):
        for _ in range(warmup):
            returned.clear()  # its graph must not live during the next call
            seconds.append(seconds_of(lambda: returned.append(call())))
    return tuple(seconds), result_of(returned[0])
