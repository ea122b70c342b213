"""Verdicts on recorded runs for the compare bench: identical ones, and ones that differ.

A run enters one comparison of a mode and no other, so the comparisons of a mode are independent.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from scipy.special import betaincinv

from scripts.bench.compare_record import PAIRS, RecordedRun
from scripts.bench.compare_turns import PAIRS as TURN_PAIRS
from trainperf.comparison.compared_run import estimates
from trainperf.core.phases import PHASES, Phase
from trainperf.core.stats.bootstrap import (
    Estimate,
    RatioInterval,
    paired_interval,
    ratio_interval,
)
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.records import CORE_COLUMNS


T = TypeVar("T")

CHANGES = (0.01, 0.02, 0.03, 0.05, 0.10, 0.30)
"""What identical runs are made longer by, to see whether it is found."""

QUIET = 0.01
"""Noise that a comparison prints, up to which the machine was quiet."""

SHORT_TURNS = f"in turns, {PAIRS} × 100 steps"
BY_TURNS = f"in turns of ten steps, {TURN_PAIRS} × 50 steps"

REPEATS = 3
"""Long runs on either side where runs are repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedRun:
    """A recorded run and what the comparison knows of it."""

    run: RecordedRun
    step: Estimate | None
    """`None` where there are too few steady steps."""


Pairing = tuple[str, Sequence[EstimatedRun], Sequence[EstimatedRun]]
"""The mode, and the runs of either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Two sides that are compared, and what truly is between them."""

    mode: str
    before: tuple[Estimate, ...]
    after: tuple[Estimate, ...]
    truth: float = 0.0
    """How much longer the steps of *after* are, relative."""
    real: bool = False
    """Whether that is work that was done, not a factor."""
    clock: str = "wall"
    """Whose time it is."""
    where: str = ""
    """Session and kind of loop."""

    def interval(self) -> RatioInterval:
        """What the comparison says."""
        if self.mode.startswith("in turns"):
            return paired_interval(self.before, self.after)
        return ratio_interval(self.before, self.after)

    def longer(self, by: float) -> "Contest":
        """The same with every step of *after* so much longer."""
        return replace(self, after=tuple(_longer(each, by) for each in self.after), truth=by)


def _longer(step: Estimate, by: float) -> Estimate:
    """All that is known of the run is in logarithms: a factor moves them and nothing else."""
    more = math.log1p(by)
    parts = tuple(part + more for part in step.parts)
    return replace(step, log=step.log + more, parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many of how many, with the 95 % interval of the rate (Clopper and Pearson)."""

    of: int
    count: int
    rate: float | None
    low: float | None
    high: float | None


def share(outcomes: Sequence[bool]) -> Share:
    """Of outcomes that do not depend on each other."""
    n, k = len(outcomes), sum(outcomes)
    if not n:
        return Share(of=0, count=0, rate=None, low=None, high=None)
    low = float(betaincinv(k, n - k + 1, 0.025)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    return Share(of=n, count=k, rate=k / n, low=low, high=high)


def estimated(runs: Sequence[RecordedRun]) -> list[EstimatedRun]:
    """What the comparison makes of each of them."""
    return [EstimatedRun(run=run, step=_estimate(run)) for run in runs]


def contests(runs: Sequence[EstimatedRun]) -> list[Contest]:
    """Everything that can be compared, mode by mode."""
    contests_: list[Contest | None] = []
    groups = _grouped(runs, lambda run: (run.session, run.kind, run.mode))
    for (_, _, mode), group in groups.items():
        paired = _pairings(mode, group)
        contests_ += [_contest(*each) for each in paired]
    contests_ += [_contest(*each) for each in _across(runs)]
    return [each for each in contests_ if each is not None]


def _pairings(mode: str, group: Sequence[EstimatedRun]) -> Iterator[Pairing]:
    if mode == "long":
        return _of_long(group)
    if mode.startswith("by turns"):
        return _turns(BY_TURNS, group, TURN_PAIRS)
    return _turns(SHORT_TURNS, group, PAIRS)


def _contest(
    mode: str, before: Sequence[EstimatedRun], after: Sequence[EstimatedRun]
) -> Contest | None:
    """`None` where a run has too few steps."""
    steps = [[each.step for each in side if each.step is not None] for side in (before, after)]
    if [len(side) for side in steps] != [len(before), len(after)]:
        return None
    run = after[0].run
    return Contest(
        mode=mode,
        before=tuple(steps[0]),
        after=tuple(steps[1]),
        truth=run.truth,
        real=run.mode.endswith("planted"),
        clock=run.clock,
        where=f"{run.session}, {run.kind}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCounts:
    """What was said in the comparisons of one mode."""

    mode: str
    clock: str
    false: Share
    """Of identical runs: how often a change is claimed."""
    power: dict[str, Share]
    """Of the same runs with every step of one side made longer: how often that is found."""
    quiet: Share
    """Of those that print a noise of at most `QUIET`: how often 3 % is found."""
    quiet_false: Share
    """Of these, how often a change is claimed of identical runs."""
    noise: float
    """Median of the noise that is printed."""
    resolution: float
    """Median of the smallest change that could be told."""


def verdict_counts(contests_of_all: Sequence[Contest]) -> list[VerdictCounts]:
    """Of identical runs, mode by mode."""
    modes: dict[tuple[str, str], list[Contest]] = defaultdict(list)
    for each in contests_of_all:
        if not each.real:
            modes[each.mode, each.clock].append(each)
    return [_counts(mode, clock, group) for (mode, clock), group in modes.items()]


def _counts(mode: str, clock: str, group: Sequence[Contest]) -> VerdictCounts:
    intervals = [each.interval() for each in group]
    quiet = [each for each, what in zip(group, intervals, strict=True) if what.noise <= QUIET]
    return VerdictCounts(
        mode=mode,
        clock=clock,
        false=share([_claims(what) for what in intervals]),
        power={f"{by:.0%}": share([_slower(each.longer(by)) for each in group]) for by in CHANGES},
        quiet=share([_slower(each.longer(0.03)) for each in quiet]),
        quiet_false=share([_claims(each.interval()) for each in quiet]),
        noise=float(np.median([what.noise for what in intervals])),
        resolution=float(np.median([what.resolution for what in intervals])),
    )


def _claims(interval: RatioInterval) -> bool:
    return not interval.low <= 1 <= interval.high


def _slower(each: Contest) -> bool:
    return each.interval().low > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """Work that was really done in every other run, and what is said of it."""

    where: str
    truth: float
    """Relative, by steps with and without it in turns within a run."""
    estimate: float
    """Relative, by the comparison."""
    low: float
    high: float
    noise: float


def planted(contests_of_all: Sequence[Contest]) -> list[Planted]:
    """Every comparison with real work on one side."""
    real = [(each, each.interval()) for each in contests_of_all if each.real]
    return [
        Planted(
            where=f"{each.where}, {each.clock} clock",
            truth=each.truth,
            estimate=interval.ratio - 1,
            low=interval.low - 1,
            high=interval.high - 1,
            noise=interval.noise,
        )
        for each, interval in real
    ]


def _of_long(runs: Sequence[EstimatedRun]) -> Iterator[Pairing]:
    for first, second in _chunks(runs, 2):
        yield "single, one after the other", [first], [second]
    half = len(runs) // 2
    for first, second in zip(runs[:half], runs[half:], strict=False):
        yield "single, half a recording apart", [first], [second]
    yield from _turns("in turns, 3 × 500 steps", runs, REPEATS)
    for chunk in _chunks(runs, 2 * REPEATS):
        yield "repeats one side after the other, 3 × 500", chunk[:REPEATS], chunk[REPEATS:]


def _turns(mode: str, runs: Sequence[EstimatedRun], pairs: int) -> Iterator[Pairing]:
    for chunk in _chunks(runs, 2 * pairs):
        yield mode, chunk[::2], chunk[1::2]


def _across(runs: Sequence[EstimatedRun]) -> Iterator[Pairing]:
    """The first session of a kind against the second, the third against the fourth."""
    long = [each for each in runs if each.run.mode == "long"]
    for group in _grouped(long, lambda run: (run.kind, run.clock)).values():
        sessions = list(_grouped(group, lambda run: (run.session,)).values())
        for before, after in _chunks(sessions, 2):
            for first, second in zip(before, after, strict=False):
                yield "single, another session", [first], [second]


def _estimate(run: RecordedRun) -> Estimate | None:
    """By the code that `trainperf compare` runs, for the reading that decides."""
    matrix = np.zeros((len(run.walls), len(CORE_COLUMNS)))
    matrix[:, len(CORE_COLUMNS) - len(PHASES) + Phase.OTHER] = run.walls
    block = StepBlock(StepSchema(), matrix)
    whole = None if block.walls is None else block.walls.value()
    return None if whole is None else estimates((block,), {"step_s": whole}).get("step_s")


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[at : at + size] for at in range(0, len(items) - size + 1, size))


def _grouped(
    runs: Sequence[EstimatedRun], key: Callable[[RecordedRun], tuple[str, ...]]
) -> Mapping[tuple[str, ...], list[EstimatedRun]]:
    groups: dict[tuple[str, ...], list[EstimatedRun]] = defaultdict(list)
    for each in runs:
        groups[key(each.run)].append(each)
    return groups
