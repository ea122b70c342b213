"""Comparison of two runs, each given as its repeats: one verdict with an interval."""

from collections.abc import Sequence

import msgspec

from trainperf.analysis.run.journal import start_time
from trainperf.analysis.summary.loss_parity import TOLERANCE, Parity, compare_losses
from trainperf.comparison.changes import BETTER, changes, interval_of, machine_slowdown
from trainperf.comparison.compared_run import ComparedRun
from trainperf.comparison.deciding_reading import DecidingReading, deciding_reading
from trainperf.comparison.results import Comparison, Noise, ReadingChange, Side, Speedup, Verdict
from trainperf.comparison.settings_diff import differences, obstacle
from trainperf.comparison.trace_differences import trace_differences
from trainperf.core.stats.bootstrap import ASSUMED_NOISE, RatioInterval


def compare(
    before: Sequence[ComparedRun],
    after: Sequence[ComparedRun],
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


def _noise(
    interval: RatioInterval, before: Sequence[ComparedRun], after: Sequence[ComparedRun]
) -> Noise:
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
    return tuple(msgspec.structs.replace(reading, verdict=None) for reading in readings)


def _speedup(
    deciding: DecidingReading,
    interval: RatioInterval,
    before: Sequence[ComparedRun],
    after: Sequence[ComparedRun],
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


def _side(repeats: Sequence[ComparedRun]) -> Side:
    runs = [repeat.summary.run for repeat in repeats]
    return Side(
        name=runs[0].name,
        paths=tuple(run.path for run in runs),
        steady_steps=sum(run.steady_steps for run in runs),
        world_size=runs[0].world_size,
    )
