"""Comparison of two runs, each given as its repeats: one verdict with an interval."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, geometric_mean

from msgspec.structs import replace

from trainperf.analysis.run.window import start_time
from trainperf.analysis.summary.loss_parity import TOLERANCE
from trainperf.comparison.clocks import headline, reconciled
from trainperf.comparison.comparability import (
    code_version,
    deciding_reading,
    differences,
    no_repeat,
    obstacle,
)
from trainperf.comparison.compared_run import ComparedRun, Repeats, is_speed
from trainperf.comparison.fit_clock import FIT_BETTER, FIT_CLOCK
from trainperf.comparison.loss_parity import compare_losses
from trainperf.comparison.results import (
    Clock,
    ClockChange,
    Comparison,
    FirstSteps,
    Noise,
    ReadingChange,
    Side,
    Speedup,
    Verdict,
)
from trainperf.comparison.trace_differences import trace_differences
from trainperf.core.readings import STEP_MEAN_S
from trainperf.core.stats.bootstrap import (
    ASSUMED_NOISE,
    RatioInterval,
    ratio_interval,
)
from trainperf.core.stats.sequential import Looks, sequential_interval
from trainperf.core.stats.verdict import MARGIN, verdict_of
from trainperf.meters import METERS
from trainperf.meters.fold import Reading


BETTER = {**{meter.name: meter.better for meter in METERS}, **FIT_BETTER}

_SPEEDS = FIT_BETTER.keys() | {meter.name for meter in METERS if is_speed(meter)}

_UNKNOWN = Reading(value=None, unit="1", reason="not among the readings of this run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How intervals are made, and judged."""

    noise: float = ASSUMED_NOISE
    """Relative standard deviation from run to run, assumed where nothing was repeated."""
    margin: float = MARGIN
    """Relative change, either way, up to which speeds count as equal."""
    looks: Looks | None = None
    """The plan, where runs that took turns are compared after every pair."""
    first_steps: FirstSteps | None = None
    """What the runs have, where they were ended before what comes back."""
    loss_tolerance: float = TOLERANCE
    """Relative difference up to which losses match."""


DEFAULT_METHOD = Method()

_Runs = tuple[Repeats, Repeats, Method]
"""Both sides, and what every reading's interval is made with."""

MOST_WAITED = 0.99
"""Share of its time: a thread that runs at all has waited less."""

TOO_FEW = "too few"
"""Begins the reason of a comparison that longer trainings may allow."""


def compare(before: Repeats, after: Repeats, method: Method = DEFAULT_METHOD) -> Comparison:
    """Compare the repeats of one run with those of another.

    Args:
        before: Repeats of the baseline.
        after: Repeats of the changed run.
        method: How intervals are made and judged.
    """
    margin, first_steps = method.margin, method.first_steps
    baseline, changed = before[0].summary, after[0].summary
    deciding = deciding_reading(before, after)
    problem = obstacle(baseline, changed) or no_repeat(before) or no_repeat(after)
    problem = problem or (None if deciding.name else deciding.why)
    runs = (before, after, method)
    intervals = {} if problem else _intervals(deciding.name or "", runs)
    if not problem and not intervals:
        of_log = deciding.name == STEP_MEAN_S
        what = "means in the steady part of a log" if of_log else "steady steps"
        problem = f"{TOO_FEW} {what} for an interval"
    worlds = [side.run.world_size for side in (baseline, changed)]
    scale = worlds[0] / worlds[1] if deciding.per_rank else None
    clocks = tuple(
        _clock(clock, name, interval, scale, margin)
        for clock, (name, interval) in intervals.items()
    )
    if len(before) == len(after) == 1 and method.looks is None:
        clocks = reconciled(clocks)
    losses = ([run.losses for run in side] for side in (after, before))
    parity = compare_losses(*losses, tolerance=method.loss_tolerance)
    verdict: Verdict = "not comparable"
    decides = None
    if clocks:
        verdict, decides = headline(clocks, whole=first_steps is None)
        # A loss that differs overrules any gain in speed.
        verdict = "loss differs" if parity.verdict == "differs" else verdict
    interval = None if decides is None else intervals[decides.clock][1]
    return Comparison(
        before=_side(before),
        after=_side(after),
        verdict=verdict,
        reason=problem or deciding.why,
        primary=deciding.name if decides is None else decides.reading,
        speedup=None if decides is None else decides.speedup,
        first_steps=first_steps,
        margin=margin,
        clocks=clocks,
        noise=None if interval is None else _noise(interval, before[0], after[0]),
        parity=parity,
        differences=differences(baseline, changed),
        readings=tuple(_judged(_changes(runs), clocks, comparable=not problem)),
        explained=trace_differences(before[0].captures, after[0].captures),
    )


def _judged(
    readings: Iterable[ReadingChange], clocks: Iterable[ClockChange], *, comparable: bool
) -> Iterator[ReadingChange]:
    """The readings: of runs that are not comparable none is faster, only the values are shown.

    A clock that is undecided is so in the table too, whatever its interval alone would say.
    """
    doubted = {clock.reading for clock in clocks if clock.verdict == "undecided"}
    for reading in readings:
        undecided = not comparable or reading.name in doubted
        verdict = "undecided" if comparable else None
        yield replace(reading, verdict=verdict) if undecided else reading


def _intervals(name: str, runs: _Runs) -> dict[Clock, tuple[str, RatioInterval]]:
    """Of either clock, the fit first: the reading and its ratio, where both runs have one."""
    names: dict[Clock, str] = {"fit": FIT_CLOCK[name], "steady step": name}
    every = {clock: (name, _interval_of(name, runs)) for clock, name in names.items()}
    return {clock: (name, ratio) for clock, (name, ratio) in every.items() if ratio is not None}


def _clock(
    clock: Clock, name: str, interval: RatioInterval, scale: float | None, margin: float
) -> ClockChange:
    """What it says; *scale* divides a rate by the number of ranks."""
    low, value, high = _gain(name, interval, scale or 1.0)
    gain = Speedup(value=value, low=low, high=high, per_rank=scale is not None)
    return ClockChange(
        clock=clock, reading=name, verdict=verdict_of(gain.low, gain.high, margin), speedup=gain
    )


def _gain(name: str, interval: RatioInterval, scale: float = 1.0) -> list[float]:
    """How many times faster a reading got: lower end, value, upper end."""
    ends = (interval.low, interval.ratio, interval.high)
    return sorted(1 / end if BETTER[name] == "lower" else end * scale for end in ends)


def _noise(interval: RatioInterval, before: ComparedRun, after: ComparedRun) -> Noise:
    assumed = interval.source not in ("turns", "repeats")
    return Noise(
        relative=interval.noise,
        assumed=assumed,
        source=interval.source,
        resolution=interval.resolution,
        apart_s=_apart_s(before, after) if assumed else None,
    )


def _apart_s(before: ComparedRun, after: ComparedRun) -> float | None:
    """Seconds from the end of the fit that began first to the start of the other."""
    starts = [start_time(run.summary.run.started_at) for run in (before, after)]
    if starts[0] is None or starts[1] is None:
        return None
    delay_s = (starts[1] - starts[0]).total_seconds()
    first = before if delay_s >= 0 else after
    return max(0.0, abs(delay_s) - sum(first.summary.ledger_s.values()))


def _side(repeats: Repeats) -> Side:
    runs = [repeat.summary.run for repeat in repeats]
    return Side(
        name=runs[0].name,
        paths=tuple(run.path for run in runs),
        steady_steps=sum(run.steady_steps for run in runs),
        world_size=runs[0].world_size,
        code=code_version(repeats[0].summary),
        coarse=runs[0].loop.data_wait_is_bound,
    )


def _changes(runs: _Runs) -> tuple[ReadingChange, ...]:
    """Every reading that either side has, in the order of the summary."""
    before, after, _ = runs
    names = dict.fromkeys([*before[0].summary.readings, *after[0].summary.readings])
    every = (_change(name, runs) for name in names)
    return tuple(change for change in every if (change.before, change.after) != (None, None))


def _interval_of(name: str, runs: _Runs) -> RatioInterval | None:
    """The ratio of a reading; `None` unless every repeat has an estimate of it."""
    before, after, method = runs
    if any(name not in run.estimates for side in (before, after) for run in side):
        return None
    baseline, changed = ([run.estimates[name] for run in side] for side in (before, after))
    if method.looks is not None:
        return sequential_interval(baseline, changed, method.looks)
    if take_turns(before, after):
        return sequential_interval(baseline, changed, Looks.at_the_end(len(before)))
    disturbed = max(map(_disturbed, (*before, *after)))
    return ratio_interval(baseline, changed, assumed=method.noise, disturbed=disturbed)


def _disturbed(run: ComparedRun) -> float:
    """Noise from run to run where the training thread of a CPU run waited for a processor.

    A repeat may wait between not at all and twice as long: two standard deviations either way.
    """
    host = run.summary.host
    if host is None or host.waited_fraction is None or run.summary.run.device != "cpu":
        return 0.0
    return -math.log1p(-min(host.waited_fraction, MOST_WAITED)) / 2


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


def _change(name: str, runs: _Runs) -> ReadingChange:
    before, after, method = runs
    unit = _readings(name, before)[0].unit
    means = [_mean(name, side) for side in (before, after)]
    change = ReadingChange(name=name, unit=unit, before=means[0], after=means[1])
    if change.before is None or change.after is None:
        lacking = _readings(name, before if change.before is None else after)
        reason = next((reading.reason for reading in lacking if reading.value is None), None)
        return replace(change, reason=reason)
    interval = _interval_of(name, runs)
    if interval is None:
        return replace(change, ratio=change.after / change.before if change.before else None)
    low, _, high = _gain(name, interval)
    return replace(
        change,
        ratio=interval.ratio,
        low=interval.low,
        high=interval.high,
        verdict=verdict_of(low, high, method.margin) if name in _SPEEDS else None,
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
    return geometric_mean(values) if min(values) > 0 else fmean(values)
