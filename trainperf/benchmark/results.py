"""Results of a benchmark: measurements, verdicts, and their text.

SI units; `None` means *not measured*.  Nothing here prints: `str(result)` is the report.
"""

import math
from collections.abc import Sequence
from statistics import median
from typing import Literal

import msgspec

from trainperf.core.formatting.table import Table, text_table
from trainperf.core.formatting.units import Scale, duration, size, times
from trainperf.core.formatting.wrap import paragraphs
from trainperf.core.stats.verdict import SpeedVerdict
from trainperf.core.stats.verdict import verdict_of as speed_verdict


Verdict = SpeedVerdict | Literal["loss differs", "not comparable"]


class PeakMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory during one call after the warm-up, outside the timed ones."""

    source: str
    """`CUDA allocator` (exact), or `resident set` (whole process, sampled: a lower bound)."""
    peak_bytes: int | None = None
    above_start_bytes: int | None = None
    """Memory that the call added.  On a CPU, memory that the process kept from an earlier call is
    reused without showing here."""
    reason: str = ""
    """Why nothing was measured."""


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
        return _text(self.steps, [_sentence(each, self.tolerance) for each in self.versus])


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
    table = Table(head=_HEAD, rows=tuple(map(_row, steps)))
    return "\n".join([*text_table(table), *paragraphs([*verdicts, *_notes(steps)])])


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
