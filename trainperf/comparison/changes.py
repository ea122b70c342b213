"""Changes of all readings between two runs, each with its interval."""

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from trainperf.comparison.compared_run import ComparedRun, is_speed
from trainperf.comparison.results import ReadingChange, Verdict
from trainperf.core.stats.bootstrap import RatioInterval, paired_interval, ratio_interval
from trainperf.core.stats.machine_pace import Slowdown, including, slowdown
from trainperf.meters import METERS
from trainperf.meters.fold import Reading


BETTER = {meter.name: meter.better for meter in METERS}

_SPEEDS = frozenset(meter.name for meter in METERS if is_speed(meter))

_UNKNOWN = Reading(value=None, unit="1", reason="not among the readings of this run")


def changes(
    before: Sequence[ComparedRun], after: Sequence[ComparedRun], noise: float
) -> tuple[ReadingChange, ...]:
    """Every reading that either side has, in the order of the summary.

    Args:
        before: Repeats of one run.
        after: Those of the other.
        noise: Assumed from run to run where there are no repeats.
    """
    names = dict.fromkeys([*before[0].summary.readings, *after[0].summary.readings])
    every = (_change(name, before, after, noise) for name in names)
    return tuple(change for change in every if (change.before, change.after) != (None, None))


def interval_of(
    name: str, before: Sequence[ComparedRun], after: Sequence[ComparedRun], noise: float
) -> RatioInterval | None:
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


def machine_slowdown(
    before: Sequence[ComparedRun], after: Sequence[ComparedRun]
) -> Slowdown | None:
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


def take_turns(before: Sequence[ComparedRun], after: Sequence[ComparedRun]) -> bool:
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


def _change(
    name: str, before: Sequence[ComparedRun], after: Sequence[ComparedRun], noise: float
) -> ReadingChange:
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


def _readings(name: str, side: Sequence[ComparedRun]) -> list[Reading]:
    return [run.summary.readings.get(name, _UNKNOWN) for run in side]


def _mean(name: str, side: Sequence[ComparedRun]) -> float | None:
    """Geometric mean over repeats, arithmetic where one is not above 0; `None` if one lacks it."""
    values = [reading.value for reading in _readings(name, side) if reading.value is not None]
    if len(values) < len(side):
        return None
    if len(values) == 1:
        return values[0]
    if min(values) > 0:
        return math.exp(sum(map(math.log, values)) / len(values))
    return sum(values) / len(values)
