"""What must be known of a run to compare it?  Its summary, a sample of its steps, its losses."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import Beside, examine
from trainperf.analysis.summary.loss_parity import LossCurve, LossFold
from trainperf.analysis.summary.schema import Summary
from trainperf.comparison.sample import SampleFold
from trainperf.core.stats.bootstrap import (
    LEAST_STEPS,
    Estimate,
    Places,
    Resampled,
    block_length,
    estimate,
    mixed,
    pieces,
    resamples,
    segments,
)
from trainperf.core.stats.quantiles import Distribution
from trainperf.core.stats.reductions import Rate, Ratio, SharedRate
from trainperf.core.steps.block import StepBlock
from trainperf.meters import METERS, Meter, Scope
from trainperf.traces.capture_files import CaptureReport


RESAMPLES = 400
"""So many show a standard deviation to 4 %."""

_SPEED = ("s", "1/s", "FLOP/s")
"""Units of readings that get faster or slower."""

_RESAMPLED = (Distribution, Ratio, Rate, SharedRate)
"""Statistics of many steps; a maximum or a last value has no interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One run of a comparison."""

    summary: Summary
    losses: LossCurve
    captures: tuple[CaptureReport, ...] = ()
    """Its traces, read."""
    estimates: Mapping[str, Estimate]
    """Reading to its logarithm and how far off it may be; those without an interval are absent."""


def member(path: Path, beside: Sequence[Beside] = ()) -> Member:
    """Read a run once.

    Args:
        path: Its directory, or one above it.
        beside: Who else wants to see its steps.

    Raises:
        RunError: It is no run directory.
    """
    run, sampled, losses = Run.open(path), SampleFold(), LossFold()
    evidence = examine(run, beside=(sampled, losses, *beside))
    summary = evidence.summary
    whole = {
        name: reading.value
        for name, reading in summary.readings.items()
        if reading.value is not None
    }
    return Member(
        summary=summary,
        captures=evidence.captures,
        losses=losses.curve(run, summary.run.notes.get("loss", "")),
        estimates=estimates(sampled.sample(), whole),
    )


def estimates(sample: tuple[StepBlock, ...], whole: Mapping[str, float]) -> dict[str, Estimate]:
    """How far off the readings of a run may be, by what its meters make of resampled steps.

    Args:
        sample: Steady steps, the same ones of every rank.
        whole: Values of the readings over all steps.
    """
    if not sample or len(sample[0]) < LEAST_STEPS:
        return {}
    n = len(sample[0])
    meters = [meter for meter in METERS if meter.name in whole and _resampled(meter, sample)]
    drawn = _values(meters, sample, resamples(n, block_length(sample[0].wall_ns), RESAMPLES))
    parts, mixture = (_values(meters, sample, chosen) for chosen in (segments(n), mixed(n)))
    small = _values([meter for meter in meters if is_speed(meter)], sample, pieces(n))
    found = {
        meter.name: estimate(
            whole[meter.name],
            Resampled(
                drawn=drawn[meter.name],
                segments=parts[meter.name],
                mixed=mixture[meter.name],
                pieces=small.get(meter.name, ()),
            ),
            lower_is_faster=meter.better == "lower",
        )
        for meter in meters
    }
    return {name: one for name, one in found.items() if one is not None}


def is_speed(meter: Meter) -> bool:
    """Whether a reading gets faster or slower."""
    return meter.unit in _SPEED and meter.better is not None


def _resampled(meter: Meter, sample: tuple[StepBlock, ...]) -> bool:
    seen = meter.observe(sample[0])
    return meter.scope is Scope.STEADY and isinstance(seen, _RESAMPLED)


def _values(
    meters: Sequence[Meter], sample: tuple[StepBlock, ...], chosen: Iterable[Places]
) -> dict[str, list[float]]:
    """What each meter says of each choice of steps; NaN where it says nothing."""
    values: dict[str, list[float]] = {meter.name: [] for meter in meters}
    for places in chosen:
        blocks = [block.take(places) for block in sample]
        for meter in meters:
            values[meter.name].append(_value(meter, blocks))
    return values


def _value(meter: Meter, blocks: Sequence[StepBlock]) -> float:
    found = [meter.observe(block) for block in blocks]
    present = [reduction for reduction in found if reduction is not None]
    if not present:
        return math.nan
    combined = type(present[0]).across(present) if len(present) > 1 else present[0]
    value = combined.value()
    return math.nan if value is None else value
