"""How much did each reading change, and how sure is that?"""

import math
from collections.abc import Sequence
from itertools import pairwise

from trainperf.comparison.results import ReadingChange, Verdict
from trainperf.comparison.side import Member, is_speed
from trainperf.core.stats.bootstrap import RatioInterval, paired_interval, ratio_interval
from trainperf.core.stats.machine_pace import Slowdown, including, slowdown
from trainperf.meters import METERS
from trainperf.meters.fold import Reading


BETTER = {meter.name: meter.better for meter in METERS}

_SPEEDS = frozenset(meter.name for meter in METERS if is_speed(meter))

_UNKNOWN = Reading(value=None, unit="1", reason="not among the readings of this run")


def changes(
    before: Sequence[Member], after: Sequence[Member], noise: float
) -> tuple[ReadingChange, ...]:
    """Every reading that either side has, in the order of the summary.

    Args:
        before: Repeats of one run.
        after: Those of the other.
        noise: Assumed from run to run where there are no repeats.
    """
    names = dict.fromkeys([*before[0].summary.readings, *after[0].summary.readings])
    found = (_change(name, before, after, noise) for name in names)
    return tuple(one for one in found if (one.before, one.after) != (None, None))


def interval_of(
    name: str, before: Sequence[Member], after: Sequence[Member], noise: float
) -> RatioInterval | None:
    """The ratio of a reading; `None` unless every repeat has an estimate of it."""
    sides = [[member.estimates.get(name) for member in side] for side in (before, after)]
    known = [[one for one in side if one is not None] for side in sides]
    if [len(side) for side in known] != [len(side) for side in sides]:
        return None
    if take_turns(before, after):
        return paired_interval(known[0], known[1])
    found = ratio_interval(known[0], known[1], assumed=noise)
    machine = machine_apart(before, after) if name in _SPEEDS else None
    if machine is None:
        return found
    return including(found, machine, lower_is_faster=BETTER[name] == "lower")


def machine_apart(before: Sequence[Member], after: Sequence[Member]) -> Slowdown | None:
    """How much slower the machine was during the second run; `None` where nothing tells.

    Repeats tell by themselves, the steps of another device have another pace, and the same work
    takes another Python, or more ranks beside each other, another time.
    """
    if (len(before), len(after)) != (1, 1):
        return None
    one, other = (side[0].summary.run for side in (before, after))
    alike = (one.software.get("python"), one.world_size) == (
        other.software.get("python"),
        other.world_size,
    )
    if not alike or {one.device, other.device} != {"cpu"}:
        return None
    return slowdown(one.paces_s, other.paces_s)


def take_turns(before: Sequence[Member], after: Sequence[Member]) -> bool:
    """Whether the repeats were run in pairs, as many of either: A B A B …, or A B B A ….

    The second is better: what gets slower steadily is then not always on the side of B.  Best is
    to run a pair at once, a few steps each in turns.
    """
    if len(before) != len(after) or len(before) < 2:
        return False
    starts = [[member.summary.run.started_at for member in side] for side in (before, after)]
    pairs = list(zip(*starts, strict=True))
    return all(map(all, pairs)) and all(max(one) < min(two) for one, two in pairwise(pairs))


def judged(name: str, low: float, high: float) -> Verdict:
    """Whether a ratio between these ends is faster or slower; of a reading that has a better."""
    if low <= 1 <= high:
        return "no clear change"
    return "faster" if (high < 1) == (BETTER.get(name) == "lower") else "slower"


def _change(
    name: str, before: Sequence[Member], after: Sequence[Member], noise: float
) -> ReadingChange:
    one, other = (_mean(name, side) for side in (before, after))
    unit = _readings(name, before)[0].unit
    if one is None or other is None:
        lacking = _readings(name, before if one is None else after)
        reason = next((reading.reason for reading in lacking if reading.value is None), None)
        return ReadingChange(name=name, unit=unit, before=one, after=other, reason=reason)
    interval = interval_of(name, before, after, noise)
    if interval is None:
        ratio = other / one if one else None
        return ReadingChange(name=name, unit=unit, before=one, after=other, ratio=ratio)
    return ReadingChange(
        name=name,
        unit=unit,
        before=one,
        after=other,
        ratio=interval.ratio,
        low=interval.low,
        high=interval.high,
        verdict=judged(name, interval.low, interval.high) if name in _SPEEDS else None,
    )


def _readings(name: str, members: Sequence[Member]) -> list[Reading]:
    return [member.summary.readings.get(name, _UNKNOWN) for member in members]


def _mean(name: str, members: Sequence[Member]) -> float | None:
    """Geometric mean over repeats, arithmetic where one is not above 0."""
    values = [reading.value for reading in _readings(name, members)]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if len(known) == 1:
        return known[0]
    if min(known) > 0:
        return math.exp(sum(map(math.log, known)) / len(known))
    return sum(known) / len(known)
