"""Comparison of two runs, each given as its repeats: one verdict with an interval."""

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from trainperf.analysis.run.journal import start_time
from trainperf.analysis.summary.loss_parity import TOLERANCE, Parity, compare_losses
from trainperf.comparison.comparability import (
    DecidingReading,
    deciding_reading,
    differences,
    obstacle,
)
from trainperf.comparison.compared_run import ComparedRun, Repeats, is_speed
from trainperf.comparison.fit_clock import FIT_BETTER
from trainperf.comparison.results import Comparison, Noise, ReadingChange, Side, Speedup, Verdict
from trainperf.comparison.trace_differences import trace_differences
from trainperf.core.stats.bootstrap import (
    ASSUMED_NOISE,
    RatioInterval,
    Slowdown,
    including,
    paired_interval,
    ratio_interval,
    slowdown,
)
from trainperf.meters import METERS
from trainperf.meters.fold import Reading


BETTER = {meter.name: meter.better for meter in METERS} | FIT_BETTER

_SPEEDS = FIT_BETTER.keys() | {meter.name for meter in METERS if is_speed(meter)}

_UNKNOWN = Reading(value=None, unit="1", reason="not among the readings of this run")


def compare(
    before: Repeats,
    after: Repeats,
    *,
    loss_tolerance: float = TOLERANCE,
    noise: float = ASSUMED_NOISE,
) -> Comparison:
    """Compare the repeats of one run with those of another.

    Args:
        before: Repeats of the baseline.
        after: Repeats of the changed run.
        loss_tolerance: Relative difference of the losses up to which they match.
        noise: Relative standard deviation from run to run, assumed where nothing was repeated.
    """
    baseline, changed = before[0].summary, after[0].summary
    deciding = deciding_reading(before, after)
    problem = obstacle(baseline, changed) or (None if deciding.name else deciding.why)
    interval = None
    if deciding.name is not None and problem is None:
        interval = interval_of(deciding.name, before, after, noise)
        problem = None if interval else f"too few steady steps for an interval of {deciding.name}"
    readings = changes(before, after, noise)
    losses = ([run.losses for run in side] for side in (after, before))
    parity = compare_losses(*losses, tolerance=loss_tolerance)
    speedup = None if interval is None else _speedup(deciding, interval, before, after)
    return Comparison(
        before=_side(before),
        after=_side(after),
        verdict=_verdict(speedup, parity),
        reason=problem or deciding.why,
        primary=deciding.name,
        speedup=speedup,
        noise=None if interval is None else _noise(interval, before, after),
        parity=parity,
        differences=differences(baseline, changed),
        readings=readings if problem is None else _without_verdicts(readings),
        explained=trace_differences(before[0].captures, after[0].captures),
    )


def _noise(interval: RatioInterval, before: Repeats, after: Repeats) -> Noise:
    assumed = interval.source not in ("turns", "repeats")
    machine = machine_slowdown(before, after)
    return Noise(
        relative=interval.noise,
        assumed=assumed,
        source=interval.source,
        resolution=interval.resolution,
        apart_s=_apart_s(before[0], after[0]) if assumed else None,
        machine=None if machine is None else machine.ratio,
    )


def _apart_s(before: ComparedRun, after: ComparedRun) -> float | None:
    """Seconds from the end of the fit that began first to the start of the other."""
    starts = [start_time(run.summary.run.started_at) for run in (before, after)]
    if starts[0] is None or starts[1] is None:
        return None
    delay_s = (starts[1] - starts[0]).total_seconds()
    first = before if delay_s >= 0 else after
    return max(0.0, abs(delay_s) - sum(first.summary.ledger_s.values()))


def _without_verdicts(readings: Sequence[ReadingChange]) -> tuple[ReadingChange, ...]:
    """Of runs that are not comparable no reading is faster: only the values are shown."""
    return tuple(replace(reading, verdict=None) for reading in readings)


def _speedup(
    deciding: DecidingReading,
    interval: RatioInterval,
    before: Repeats,
    after: Repeats,
) -> Speedup:
    """How many times faster, whichever way the reading counts."""
    fastest = interval.fastest
    if BETTER.get(deciding.name or "") == "lower":
        return Speedup(
            value=1 / interval.ratio,
            low=1 / interval.high,
            high=1 / interval.low,
            per_rank=False,
            fastest=fastest and 1 / fastest,
        )
    worlds = [side[0].summary.run.world_size for side in (before, after)]
    scale = worlds[0] / worlds[1] if deciding.per_rank else 1.0
    return Speedup(
        value=interval.ratio * scale,
        low=interval.low * scale,
        high=interval.high * scale,
        per_rank=deciding.per_rank,
        fastest=fastest and fastest * scale,
    )


def _verdict(speedup: Speedup | None, parity: Parity) -> Verdict:
    """The verdict; a loss that differs overrules any gain in speed."""
    if speedup is None:
        return "not comparable"
    if parity.verdict == "differs":
        return "loss differs"
    if speedup.low <= 1 <= speedup.high:
        return "no clear change"
    return "faster" if speedup.low > 1 else "slower"


def _side(repeats: Repeats) -> Side:
    runs = [repeat.summary.run for repeat in repeats]
    return Side(
        name=runs[0].name,
        paths=tuple(run.path for run in runs),
        steady_steps=sum(run.steady_steps for run in runs),
        world_size=runs[0].world_size,
    )


def changes(before: Repeats, after: Repeats, noise: float) -> tuple[ReadingChange, ...]:
    """Every reading that either side has, in the order of the summary.

    Args:
        before: Repeats of one run.
        after: Those of the other.
        noise: Assumed from run to run where there are no repeats.
    """
    names = dict.fromkeys([*before[0].summary.readings, *after[0].summary.readings])
    every = (_change(name, before, after, noise) for name in names)
    return tuple(change for change in every if (change.before, change.after) != (None, None))


def interval_of(name: str, before: Repeats, after: Repeats, noise: float) -> RatioInterval | None:
    """The ratio of a reading; `None` unless every repeat has an estimate of it."""
    sides = (before, after)
    if any(name not in run.estimates for side in sides for run in side):
        return None
    baseline, changed = ([run.estimates[name] for run in side] for side in sides)
    if take_turns(before, after):
        return paired_interval(baseline, changed)
    interval = ratio_interval(baseline, changed, assumed=noise)
    machine = machine_slowdown(before, after) if name in _SPEEDS else None
    if machine is None:
        return interval
    return including(interval, machine, lower_is_faster=BETTER[name] == "lower")


def machine_slowdown(before: Repeats, after: Repeats) -> Slowdown | None:
    """How much slower the machine was during the second run; `None` where that is not known.

    It is known of two single runs on the CPU with the same Python and number of ranks: repeats
    show it themselves, and the speed of the host says nothing about another device.
    """
    if (len(before), len(after)) != (1, 1):
        return None
    first, second = (side[0].summary.run for side in (before, after))
    setups = {(run.device, run.software.get("python"), run.world_size) for run in (first, second)}
    if len(setups) > 1 or first.device != "cpu":
        return None
    return slowdown(first.paces_s, second.paces_s)


def take_turns(before: Repeats, after: Repeats) -> bool:
    """Whether the repeats were run in pairs, as many of either: A B A B …, or A B B A ….

    A B B A is better: a steady slowdown of the machine is then not always on the side of B.  Best
    is to run a pair at once, a few steps each in turns.
    """
    if len(before) != len(after) or len(before) < 2:
        return False
    starts = [[run.summary.run.started_at for run in side] for side in (before, after)]
    pairs = list(zip(*starts, strict=True))
    in_order = all(max(pair) < min(following) for pair, following in pairwise(pairs))
    return in_order and all(map(all, pairs))


def verdict_of(name: str, low: float, high: float) -> Verdict:
    """Whether an interval of the ratio after/before is faster or slower; of a speed reading."""
    if low <= 1 <= high:
        return "no clear change"
    return "faster" if (high < 1) == (BETTER.get(name) == "lower") else "slower"


def _change(name: str, before: Repeats, after: Repeats, noise: float) -> ReadingChange:
    unit = _readings(name, before)[0].unit
    means = [_mean(name, side) for side in (before, after)]
    change = ReadingChange(name=name, unit=unit, before=means[0], after=means[1])
    if change.before is None or change.after is None:
        lacking = _readings(name, before if change.before is None else after)
        reason = next((reading.reason for reading in lacking if reading.value is None), None)
        return replace(change, reason=reason)
    interval = interval_of(name, before, after, noise)
    if interval is None:
        return replace(change, ratio=change.after / change.before if change.before else None)
    return replace(
        change,
        ratio=interval.ratio,
        low=interval.low,
        high=interval.high,
        verdict=verdict_of(name, interval.low, interval.high) if name in _SPEEDS else None,
    )


def _readings(name: str, side: Repeats) -> list[Reading]:
    return [run.summary.readings.get(name, _UNKNOWN) for run in side]


def _mean(name: str, side: Repeats) -> float | None:
    """Geometric mean over repeats, arithmetic where one is not above 0; `None` if one lacks it."""
    values = [reading.value for reading in _readings(name, side) if reading.value is not None]
    if len(values) < len(side):
        return None
    if len(values) == 1:
        return values[0]
    if min(values) > 0:
        return math.exp(sum(map(math.log, values)) / len(values))
    return sum(values) / len(values)
