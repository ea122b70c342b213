"""Did the change do it?  Two runs, each given as its repeats, and one verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from trainperf.analysis.run.journal import moment
from trainperf.analysis.summary.loss_parity import TOLERANCE, Parity, compared
from trainperf.comparison.changes import BETTER, changes, interval_of, machine_apart
from trainperf.comparison.deciding_reading import Primary, primary
from trainperf.comparison.results import Comparison, Noise, ReadingChange, Side, Speedup, Verdict
from trainperf.comparison.settings_diff import differences, obstacle
from trainperf.comparison.side import Member
from trainperf.comparison.trace_differences import explained
from trainperf.core.stats.bootstrap import ASSUMED_NOISE, RatioInterval


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What is decided before the runs are read."""

    tolerance: float = TOLERANCE
    """Relative difference of losses up to which they are equal."""
    noise: float = ASSUMED_NOISE
    """Relative standard deviation from run to run, where nothing was repeated."""

    def compare(self, before: Sequence[Member], after: Sequence[Member]) -> Comparison:
        """Repeats of one run, and those of another."""
        one, other = before[0].summary, after[0].summary
        first = primary(before, after)
        against = obstacle(one, other) or (None if first.name else first.why)
        interval = None
        if first.name is not None and against is None:
            interval = interval_of(first.name, before, after, self.noise)
            against = None if interval else f"too few steady steps for an interval of {first.name}"
        readings = changes(before, after, self.noise)
        curves = ([member.losses for member in side] for side in (after, before))
        learned = compared(*curves, tolerance=self.tolerance)
        speedup = None if interval is None else _speedup(first, interval, before, after)
        verdict = _verdict(speedup, learned)
        return Comparison(
            before=_side(before),
            after=_side(after),
            verdict=verdict,
            reason=against or first.why,
            primary=first.name,
            speedup=speedup,
            noise=None if interval is None else _noise(interval, before, after),
            parity=learned,
            differences=differences(one, other),
            readings=readings if against is None else _unjudged(readings),
            explained=explained(before[0].captures, after[0].captures),
        )


def _noise(interval: RatioInterval, before: Sequence[Member], after: Sequence[Member]) -> Noise:
    assumed = interval.source not in ("turns", "repeats")
    machine = machine_apart(before, after)
    return Noise(
        relative=interval.noise,
        assumed=assumed,
        source=interval.source,
        resolution=interval.resolution,
        apart_s=_apart_s(before[0], after[0]) if assumed else None,
        machine=None if machine is None else machine.ratio,
    )


def _apart_s(before: Member, after: Member) -> float | None:
    """From the end of the fit that began first to the beginning of the other."""
    one, other = (moment(each.summary.run.started_at) for each in (before, after))
    if one is None or other is None:
        return None
    began_s = (other - one).total_seconds()
    first = before if began_s >= 0 else after
    return max(0.0, abs(began_s) - sum(first.summary.ledger_s.values()))


def _unjudged(readings: Sequence[ReadingChange]) -> tuple[ReadingChange, ...]:
    """Of runs that are not comparable nothing is faster: the values stand side by side."""
    return tuple(msgspec.structs.replace(one, verdict=None) for one in readings)


def _speedup(
    first: Primary, interval: RatioInterval, before: Sequence[Member], after: Sequence[Member]
) -> Speedup:
    """How many times faster, whichever way the reading counts."""
    fastest = interval.fastest
    if BETTER.get(first.name or "") == "lower":
        return Speedup(
            value=1 / interval.ratio,
            low=1 / interval.high,
            high=1 / interval.low,
            per_rank=False,
            fastest=fastest and 1 / fastest,
        )
    ranks = [side[0].summary.run.world_size for side in (before, after)]
    shared = ranks[0] / ranks[1] if first.per_rank else 1.0
    return Speedup(
        value=interval.ratio * shared,
        low=interval.low * shared,
        high=interval.high * shared,
        per_rank=first.per_rank,
        fastest=fastest and fastest * shared,
    )


def _verdict(speedup: Speedup | None, learned: Parity) -> Verdict:
    """A loss that differs overrules whatever is faster."""
    if speedup is None:
        return "not comparable"
    if learned.verdict == "differs":
        return "loss differs"
    if speedup.low <= 1 <= speedup.high:
        return "no clear change"
    return "faster" if speedup.low > 1 else "slower"


def _side(members: Sequence[Member]) -> Side:
    runs = [member.summary.run for member in members]
    return Side(
        name=runs[0].name,
        paths=tuple(run.path for run in runs),
        steady_steps=sum(run.steady_steps for run in runs),
        world_size=runs[0].world_size,
    )
