"""Readings while a fit goes on: of the steps since they were last shown, and of the whole fit.

What a user's own meters and probes give is made plain numbers here, before anything else meets it.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial

from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.records import FACTS, OwnReading, RunInfo
from trainperf.meters.base import Meter
from trainperf.meters.fold import Fold, Reading, readings
from trainperf.meters.own import kept, number, plain, without_value
from trainperf.recording.guard import Guard
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft


class OwnMeters:
    """A user's own meters, each behind the guard by itself: a fault switches off that one only.

    They are also folded over the whole fit, which nobody can do later (`trainperf.meters.own`).
    """

    def __init__(self, meters: Sequence[Meter], guard: Guard) -> None:
        self._guard = guard
        self._folds = [(f"meter {m.name}", m, Fold([m]), Fold([m])) for m in meters]

    def observe(self, block: StepBlock) -> None:
        """Take the next block."""
        for part, _, window, fold in self._folds:
            self._guard.run(part, partial(window.observe, block))
            self._guard.run(part, partial(fold.observe, block))

    def window(self, info: RunInfo) -> dict[str, Reading]:
        """Readings of the steps since the last call."""
        taken = {
            meter.name: self._guard.run(part, partial(_taken, window, info))
            for part, meter, window, _ in self._folds
        }
        return {name: reading for name, reading in taken.items() if reading is not None}

    def fit(self, info: RunInfo) -> Mapping[str, OwnReading]:
        """Readings of all steps so far, as they are written."""
        return {
            meter.name: self._guard.run(part, partial(kept, meter, fold, info))
            or without_value(meter, switched_off(part, self._guard.faults[part]))
            for part, meter, _, fold in self._folds
        }


def taken(window: Fold, info: RunInfo) -> dict[str, Reading]:
    """Readings of a window; the next one begins.

    Meters of the whole fit (the first step, overflows, peaks) go on; all others stand on the steps
    since the last take, so that a curve shows what changed.
    """
    now = readings([window], info)
    window.reset()
    return now


def _taken(window: Fold, info: RunInfo) -> Reading:
    (reading,) = taken(window, info).values()
    return plain(reading)


class OwnFacts:
    """The facts of a user's own probes: a number that is finite, or not measured.

    A probe that puts anything else into a step is switched off, and no other part suffers.
    """

    def __init__(self, probes: Sequence[Probe], columns: tuple[str, ...], guard: Guard) -> None:
        self._guard, self._columns = guard, columns
        self._own = [
            (fact, guard.wrap(probe.name, _plain_fact))
            for probe in probes
            for fact in probe.facts
            if fact not in FACTS
        ]

    def settle(self, drafts: Sequence[Draft]) -> None:
        """Make the facts of these steps plain, before they are written."""
        for draft in drafts:
            for fact, plain_fact in self._own:
                draft.facts[fact] = plain_fact(draft.facts[fact])
            for fact in [*draft.facts][len(self._columns) :]:
                del draft.facts[fact]
                self._guard.fault(f"fact {fact}", KeyError("no probe has it among its facts"))


_EXACT = 2**53
"""Whole numbers up to here survive the way through a float."""


def _plain_fact(value: object) -> float | None:
    if value is None or (type(value) is int and abs(value) <= _EXACT):
        return value
    fact = number(value)
    return fact if math.isfinite(fact) else None


def switched_off(part: str, error: str) -> str:
    """Why a part that failed has measured nothing."""
    return f"not measured: {part} was switched off after an error ({error})"
