"""Measurement of versions in turns, as rows of a case.

The number of rounds is fixed before the first of them, from how long a call takes and never from
what comes out: a measurement that ends when it is decided is decided too often.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch

from recipes.cases.case import MeasuredRow
from trainperf.benchmark import BenchmarkComparison, compare
from trainperf.benchmark.calls import seconds_of
from trainperf.core.machine.limits import cpu_count
from trainperf.core.machine.surroundings import cpu_model


Batch = TypeVar("Batch")

LEAST_ROUNDS, MOST_ROUNDS = 7, 101
SHORT_S = 2e-4
"""A call that is shorter is repeated between two readings of the clock."""


def paired(
    versions: Mapping[str, Callable[[Batch], object]],
    batch: Batch,
    *,
    seconds: float,
    tolerance: float = 0.01,
    warmup: int = 2,
) -> tuple[MeasuredRow, ...]:
    """Time versions in turns for about so many seconds; the first is what the others relate to.

    Args:
        versions: By name; each takes *batch*.  What they return is compared (see
            `trainperf.benchmark.compare`).
        batch: The input of all.
        seconds: Of measuring; at least 7 rounds are taken, however long they are.
        tolerance: Largest relative difference of results that counts as the same.
        warmup: Calls of each that do not count.
    """
    return rows(turns(versions, batch, seconds=seconds, tolerance=tolerance, warmup=warmup))


def turns(
    versions: Mapping[str, Callable[[Batch], object]],
    batch: Batch,
    *,
    seconds: float,
    tolerance: float = 0.01,
    warmup: int = 2,
) -> BenchmarkComparison:
    """The comparison itself, whose text is a report of trainperf's own."""
    took_s = [_warm_call_s(version, batch) for version in versions.values()]
    calls = max(1, round(SHORT_S / max(min(took_s), 1e-7)))
    rounds = round(seconds / max(sum(took_s) * calls, 1e-9))
    return compare(
        versions,
        batch,
        warmup=warmup,
        repeat=min(max(rounds, LEAST_ROUNDS), MOST_ROUNDS),
        calls=calls,
        tolerance=tolerance,
    )


def rows(comparison: BenchmarkComparison) -> tuple[MeasuredRow, ...]:
    """A row per version: its median, and its ratio to the first with the 95 % interval."""
    first, *others = comparison.steps
    measured = [MeasuredRow(what=first.name, value=first.median_s)]
    for step, versus in zip(others, comparison.versus, strict=True):
        measured.append(
            MeasuredRow(
                what=step.name,
                value=step.median_s,
                ratio=versus.speedup,
                low=versus.low,
                high=versus.high,
                against=versus.baseline,
                rounds=len(step.steady_s),
                differs=_differs(versus.verdict, versus.difference, comparison.tolerance),
            )
        )
    return tuple(measured)


def exact(what: str, value: float, before: MeasuredRow) -> MeasuredRow:
    """A count that no clock disturbs (bytes, calls), next to the row *before* of the same unit."""
    ratio = (before.value or 0.0) / value
    return MeasuredRow(
        what=what,
        value=value,
        unit=before.unit,
        ratio=ratio,
        low=ratio,
        high=ratio,
        against=before.what,
    )


def machine() -> dict[str, str]:
    """What a figure was measured on."""
    facts = {
        "processor": cpu_model() or "unknown",
        "cores": str(cpu_count() or "unknown"),
        "torch": torch.__version__.partition("+")[0],
    }
    if torch.cuda.is_available():
        facts["device"] = torch.cuda.get_device_name()
    return facts


def _differs(verdict: str, difference: float | None, tolerance: float) -> str:
    if verdict == "not comparable":
        return "of another kind or shape"
    if verdict != "loss differs":
        return ""
    return "not finite" if difference is None else f"by {difference:.2g} (tolerance {tolerance:g})"


def _warm_call_s(version: Callable[[Batch], object], batch: Batch) -> float:
    """Seconds of the third call: the first may compile, the second may allocate."""
    for _ in range(3):
        took_s = seconds_of(lambda: version(batch))
    return took_s
