"""Planted truth for the accuracy bench: what was put in, what came back, how far off it is."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.directory import Run
from trainperf.core.phases import GAPS, PHASES, Gap, Phase
from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.records import EndMark, GapRecord, Totals


SHORT_S, LONG_S = 0.002, 0.020
TOLERATED_FRACTION = 0.01
TOLERATED_S = 50e-6
"""Design §8: a duration may be off by 1 % or by 50 µs per event, whichever is more."""

Flags = npt.NDArray[np.bool_]

SETTLING_EVENTS = 4
"""Left out at the start, where torch and Lightning do things once."""

_CLOCK = getattr(time, "CLOCK_MONOTONIC_RAW", time.CLOCK_MONOTONIC)


def independent_ns() -> int:
    """A clock that trainperf does not use: the hardware's, undisciplined, where there is one."""
    return time.clock_gettime_ns(_CLOCK)


class Sleeper:
    """Sleeps short, short, long, long, … and measures each sleep by the independent clock.

    Short ones too, because whatever runs after a sleep finds cold caches: between short and long
    the difference is the sleeping alone.  Twice each, because the next step feels it as well.
    """

    def __init__(self, short_s: float = SHORT_S, long_s: float = LONG_S) -> None:
        self._lengths_s = (short_s, short_s, long_s, long_s)
        self.slept_ns: list[int] = []

    def __call__(self) -> None:
        """The next sleep."""
        begun = independent_ns()
        time.sleep(self._lengths_s[len(self.slept_ns) % 4])
        self.slept_ns.append(independent_ns() - begun)


Verdict = Literal["right", "wrong", "unclear"]
"""`unclear`: off, but the interval of the error reaches into what is tolerated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthCase:
    """One planted fact and what was read of it."""

    name: str
    reading: str
    """Where it was to be found."""
    unit: str
    planted: float
    came_back: float
    n: int
    """Events it stands on."""
    verdict: Verdict
    error_low: float | None = None
    error_high: float | None = None
    """Ends of a 95 % interval of the error, where events differ."""
    elsewhere: float | None = None
    """The most that any other phase gained, per event."""

    @property
    def error(self) -> float:
        """Came back minus planted."""
        return self.came_back - self.planted


def exact(name: str, reading: str, unit: str, planted: float, came_back: float) -> TruthCase:
    """A fact that may not be off at all."""
    return TruthCase(
        name=name,
        reading=reading,
        unit=unit,
        planted=planted,
        came_back=came_back,
        n=1,
        verdict="right" if planted == came_back else "wrong",
    )


def roughly(name: str, reading: str, unit: str, planted: float, came_back: float) -> TruthCase:
    """A single amount that may be off by 1 %."""
    right = abs(came_back - planted) <= TOLERATED_FRACTION * planted
    return TruthCase(
        name=name,
        reading=reading,
        unit=unit,
        planted=planted,
        came_back=came_back,
        n=1,
        verdict="right" if right else "wrong",
    )


def duration(
    name: str,
    reading: str,
    slept_ns: Sequence[float],
    spent_ns: Sequence[float],
    others_ns: Sequence[Sequence[float]] = (),
) -> TruthCase:
    """Sleeps against what was recorded of the same events, in order.

    What a long sleep adds beyond a short one, at the median: of a phase the rest, which is no
    sleep, drops out.
    """
    slept = np.asarray(slept_ns[SETTLING_EVENTS:], dtype=np.float64)
    # Of the tenth and the ninetieth percentile: one sleep may have been drawn out without end.
    long = slept > np.quantile(slept, [0.1, 0.9]).mean()
    rest = [spent - real for spent, real in zip(spent_ns, slept_ns, strict=True)]
    planted, error = _gained(slept_ns, long), _gained(rest, long)
    low, high = _interval(rest, long)
    tolerated = max(TOLERATED_FRACTION * planted, TOLERATED_S * 1e9)
    unclear: Verdict = "unclear" if low <= tolerated and high >= -tolerated else "wrong"
    return TruthCase(
        name=name,
        reading=reading,
        unit="s",
        planted=planted / 1e9,
        came_back=(planted + error) / 1e9,
        n=int(long.sum()),
        verdict="right" if abs(error) <= tolerated else unclear,
        error_low=low / 1e9,
        error_high=high / 1e9,
        elsewhere=max((_gained(other, long) / 1e9 for other in others_ns), default=None),
    )


def _gained(values: Sequence[float], long: Flags) -> float:
    kept = np.asarray(values[SETTLING_EVENTS:], dtype=np.float64)
    return float(np.median(kept[long]) - np.median(kept[~long]))


def _interval(values: Sequence[float], long: Flags) -> tuple[float, float]:
    """Percentile bootstrap, long and short events drawn apart."""
    kept = np.asarray(values[SETTLING_EVENTS:], dtype=np.float64)
    random = np.random.default_rng(0)
    after_long, after_short = (
        np.median(random.choice(group, (2000, len(group))), axis=1)
        for group in (kept[long], kept[~long])
    )
    low, high = np.quantile(after_long - after_short, [0.025, 0.975]).tolist()
    return low, high


@dataclass(slots=True)
class TruthRun:
    """A record file, read back."""

    steps: StepBlock
    gaps: list[GapRecord] = field(default_factory=list)
    totals: Totals | None = None
    end: EndMark | None = None

    def phase_ns(self, phase: Phase) -> list[float]:
        """Host time of every step in a phase."""
        spent: list[float] = self.steps.host_ns(phase).tolist()
        return spent

    def other_phases_ns(self, phase: Phase) -> list[list[float]]:
        """The same for every other phase."""
        return [self.phase_ns(other) for other in PHASES if other is not phase]

    def fact(self, name: str) -> list[float]:
        """A fact of every step that has it."""
        return list(self.fact_by_step(name).values())

    def fact_by_step(self, name: str) -> dict[int, float]:
        """Step number to a fact, where it is known."""
        steps = self.steps.having(name)
        values = steps.fact(name) if steps else None
        if steps is None or values is None:
            return {}
        return dict(zip(steps.index.astype(int).tolist(), values.tolist(), strict=True))

    def gap_ns(self, gap: Gap) -> list[int]:
        """Every gap of one kind, in order."""
        return [record.duration_ns for record in self.gaps if record.gap == gap.label]

    def ledger_ns(self) -> Mapping[str, int]:
        """All time of the fit by phase and gap."""
        spent = {phase.label: int(sum(self.phase_ns(phase))) for phase in PHASES}
        return {**spent, **{gap.label: sum(self.gap_ns(gap)) for gap in GAPS}}


def recorded(run: Path, rank: int = 0) -> TruthRun:
    """Read what one rank wrote; a part of ours that was switched off is an error."""
    file = next(file for file in Run.open(run).attempts[-1] if file.rank == rank)
    entries = list(file.entries())
    blocks = [entry for entry in entries if isinstance(entry, StepBlock)]
    run_read = TruthRun(StepBlock.joined(blocks))
    for entry in entries:
        if isinstance(entry, GapRecord):
            run_read.gaps.append(entry)
        elif isinstance(entry, Totals):
            run_read.totals = entry
        elif isinstance(entry, EndMark):
            run_read.end = entry
    if run_read.totals is not None and run_read.totals.faults:
        raise RuntimeError(f"{run}: {run_read.totals.faults}; nothing can be said about accuracy")
    return run_read
