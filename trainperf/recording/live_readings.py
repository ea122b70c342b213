"""Readings while a fit goes on: of the steps since they were last shown, and of the whole fit.

What a user's own meters and probes give is made plain numbers here, before anything else meets it.
"""

import math
from collections.abc import Sequence
from functools import partial

from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.records import FACTS, OwnReading, RunInfo
from trainperf.meters.base import Meter
from trainperf.meters.fold import Fold, Reading, readings
from trainperf.meters.own import kept, number, plain, without_value
from trainperf.recording.guard import Guard
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft


READINGS = "readings"
"""The part of a fit that its own meters are, of which a fault switches off all."""


class LiveMeters:
    """The meters of a fit; a fault of one of the user's switches off that one only.

    The user's are also folded over the whole fit, which nobody can do later
    (`trainperf.meters.own`).

    Args:
        meters: Ours.
        own: The user's.
    """

    def __init__(self, meters: Sequence[Meter], own: Sequence[Meter], guard: Guard) -> None:
        self._guard = guard
        self._own = {f"meter {meter.name}": Fold([meter]) for meter in own}
        windows = {part: Fold(fold.meters) for part, fold in self._own.items()}
        self._windows = {READINGS: Fold(meters), **windows}

    @property
    def steps(self) -> int:
        """Since readings were last taken."""
        return self._windows[READINGS].steps

    def observe(self, block: StepBlock) -> None:
        """Take the next block."""
        for part, fold in (*self._windows.items(), *self._own.items()):
            self._guard.run(part, partial(fold.observe, block))

    def take(self, info: RunInfo) -> dict[str, Reading]:
        """Readings of the steps since the last call.

        Meters of the whole fit (the first step, overflows, peaks) go on; all others stand on the
        steps since, so that a curve shows what changed.
        """
        shown: dict[str, Reading] = {}
        for part, window in self._windows.items():
            shown |= self._guard.run(part, partial(_taken, window, info)) or {}
        return shown

    def fit(self, info: RunInfo) -> dict[str, OwnReading]:
        """Readings of the user's of all steps so far, as they are written."""
        return {
            meter.name: self._guard.run(part, partial(kept, meter, fold, info))
            or without_value(meter, switched_off(part, self._guard.faults[part]))
            for part, fold in self._own.items()
            for meter in fold.meters
        }


def _taken(window: Fold, info: RunInfo) -> dict[str, Reading]:
    now = readings([window], info)
    window.reset()
    return {name: plain(reading) for name, reading in now.items()}


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
