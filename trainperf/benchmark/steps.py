"""Benchmarks of steps, and their results: one by itself, or several against a baseline.

Candidates are timed in turns, one call each, in an order that is reversed every round, so that a
machine that slows down slows all of them.

Results are in SI units; `None` means *not measured*.  Nothing here prints: `str(result)` is the
report.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Literal, TypeVar

import msgspec

from trainperf.benchmark.calls import (
    Clock,
    PeakMemory,
    StepResult,
    median_and_iqr,
    peak_memory,
    quiet,
    result_of,
    seconds_of,
    seeded,
    synchronised_clock,
)
from trainperf.core.errors import ConfigError
from trainperf.core.formatting.html.markup import fragment, paragraph, table, tag, text
from trainperf.core.formatting.table import Table, text_table
from trainperf.core.formatting.units import Scale, duration, size, times
from trainperf.core.formatting.wrap import paragraphs
from trainperf.core.stats.verdict import SpeedVerdict
from trainperf.core.stats.verdict import verdict_of as speed_verdict


Verdict = SpeedVerdict | Literal["loss differs", "not comparable"]


class StepBenchmark(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of one function, on the host clock, the device idle at both ends of each."""

    name: str
    cold_s: float
    """The first call: compilation, autotuning, allocation, unless it was called before."""
    warmup_s: tuple[float, ...]
    """The excluded calls, the cold one first."""
    steady_s: tuple[float, ...]
    """The calls that count, in order."""
    median_s: float
    iqr_s: float
    calls: int
    """Calls between two readings of the clock; each duration is their mean."""
    first_loss: float | None
    """Loss of the first call, if it returned one number."""
    warmed_loss: float | None
    """Loss of the last warm-up call: after one update fewer than there are such calls."""
    memory: PeakMemory
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        return _text([self], [])

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        scale = Scale.of(self.median_s)
        return _html([self], [f"{self.name}: {scale.say(self.median_s)}"])


class Versus(msgspec.Struct, frozen=True, kw_only=True):
    """One function against the baseline, from calls timed in turns."""

    name: str
    baseline: str
    speedup: float
    """Median over the rounds of baseline time / this one's time; above 1 is faster."""
    low: float | None
    high: float | None
    difference: float | None
    """Largest relative difference of the results (loss or output) of the first and the last warm-up
    call, same seed for both; `None` where nothing was returned, the shapes differ, or a value is
    not finite."""
    finite: bool
    """Whether all compared results are finite; if not, they count as different."""
    verdict: Verdict


class BenchmarkComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Several functions timed in turns; the first is the baseline."""

    steps: tuple[StepBenchmark, ...]
    versus: tuple[Versus, ...]
    tolerance: float

    def __str__(self) -> str:
        return _text(self.steps, self._verdicts)

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        return _html(self.steps, self._verdicts)

    @property
    def _verdicts(self) -> list[str]:
        return [_sentence(each, self.tolerance) for each in self.versus]


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Median of the ratios with the 95 % interval of order statistics.

    Exact whatever their distribution, if neighbouring rounds are independent; without ends below
    six ratios, where no order statistics enclose the median that surely.
    """
    ordered = sorted(ratios)
    n = len(ordered)
    outside = 0
    cumulative = 0.0
    while outside < n:
        cumulative += math.comb(n, outside) / 2**n
        if 2 * cumulative > 0.05:
            break
        outside += 1
    if outside == 0:
        return median(ordered), None, None
    return median(ordered), ordered[outside - 1], ordered[n - outside]


def verdict_of(low: float | None, high: float | None, *, comparable: bool, same: bool) -> Verdict:
    """Verdict on a speed-up between *low* and *high*; a different result is never called faster."""
    if not comparable:
        return "not comparable"
    if not same:
        return "loss differs"
    return "undecided" if low is None or high is None else speed_verdict(low, high)


_HEAD = ("", "median", "IQR", "calls", "cold", "peak memory")


def _text(steps: Sequence[StepBenchmark], verdicts: Sequence[str]) -> str:
    grid = Table(head=_HEAD, rows=tuple(map(_row, steps)))
    return "\n".join([*text_table(grid), *paragraphs([*verdicts, *_notes(steps)])])


def _html(steps: Sequence[StepBenchmark], answer: Sequence[str]) -> str:
    notes = (paragraph(note, "soft") for note in _notes(steps))
    headings = (tag("h1", text(sentence)) for sentence in answer)
    return fragment(tag("header", *headings, table(_HEAD, map(_row, steps)), *notes))


def _row(step: StepBenchmark) -> tuple[str, ...]:
    scale = Scale.of(step.median_s)
    peak = step.memory.peak_bytes
    return (
        step.name,
        scale.say(step.median_s),
        scale.say(step.iqr_s),
        f"{len(step.steady_s)} × {step.calls}" if step.calls > 1 else str(len(step.steady_s)),
        duration(step.cold_s),
        "not measured" if peak is None else size(peak),
    )


def _notes(steps: Sequence[StepBenchmark]) -> list[str]:
    notes = []
    measured = {step.memory.source for step in steps if step.memory.peak_bytes is not None}
    if measured:
        notes.append(f"peak memory: {', '.join(sorted(measured))}, one call after the timed ones")
    notes += [
        f"{step.name}: peak memory not measured: {step.memory.reason}"
        for step in steps
        if step.memory.reason
    ]
    notes += [f"{step.name}: {warning}" for step in steps for warning in step.warnings]
    return notes


def _sentence(versus: Versus, tolerance: float) -> str:
    """The verdict in a sentence."""
    names = f"{versus.name} against {versus.baseline}: {versus.verdict}"
    if versus.verdict == "not comparable":
        return f"{names} (results of different kinds or shapes)"
    bounded = versus.low is not None and versus.high is not None
    interval = f" [{versus.low:.2f}–{versus.high:.2f}]" if bounded else ""
    speed = f"{times(versus.speedup)} the speed{interval}"
    if not versus.finite:
        return f"{names}, {speed}; a result is not finite"
    if versus.difference is None:
        return f"{names}, {speed}; results not compared: no loss or output was returned"
    if versus.difference == 0:
        return f"{names}, {speed}; equal results"
    apart = f"results differ by {versus.difference:.2g} (tolerance {tolerance:g})"
    return f"{names}, {speed}; {apart}"


Batch = TypeVar("Batch")

_SEED = 0
_NOISY = 0.10
"""IQR over median from which a measurement is noisy; `torch.utils.benchmark` warns there too."""
_SHORT_S = 1e-4
"""Below this, reading a synchronised clock is no longer small against the call."""


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
