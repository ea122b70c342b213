"""Readings while a fit goes on: of the steps since they were last shown, and of the whole fit.

What a user's own meters and probes give is made plain numbers here, before anything else meets it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from trainperf.core.steps.block import BLOCK_STEPS, StepBlock
from trainperf.core.steps.records import FACTS, OwnReading, RunInfo
from trainperf.meters.base import Meter
from trainperf.meters.fold import Fold, Reading, readings
from trainperf.meters.own import kept, number, plain, without_value
from trainperf.recording.guard import Guard
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft


T = TypeVar("T")


class Window:
    """Gathers blocks until somebody takes the readings, then begins anew.

    Meters of the whole fit (the first step, overflows, peaks) go on; all others stand on the steps
    since the last take, so that a curve shows what changed.

    Folding is put off until a whole block has come together or somebody wants to know: it costs by
    the call, and blocks are then those that a reader of the files makes.
    """

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._fold = Fold(meters)
        self._gathered: list[StepBlock] = []
        self.steps = 0
        """Steps observed since the last take."""

    def observe(self, block: StepBlock) -> None:
        """Take the next block."""
        self._gathered.append(block)
        self.steps += len(block)
        if self.steps - self._fold.steps >= BLOCK_STEPS:
            self._fold_gathered()

    def take(self, info: RunInfo) -> dict[str, Reading]:
        """Readings of the window; the next one begins."""
        self._fold_gathered()
        now = readings([self._fold], info)
        self._fold.reset()
        self.steps = 0
        return now

    def _fold_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._fold.observe(StepBlock.joined(gathered))


class OwnMeters:
    """A user's own meters, each behind the guard by itself: a fault switches off that one only.

    They are also folded over the whole fit, which nobody can do later (`trainperf.meters.own`).
    """

    def __init__(self, meters: Sequence[Meter], guard: Guard) -> None:
        self._guard = guard
        self._folds = [(meter, Window([meter]), Fold([meter])) for meter in meters]

    def observe(self, block: StepBlock) -> None:
        """Take the next block."""
        for meter, window, fold in self._folds:
            self._run(meter, partial(window.observe, block))
            self._run(meter, partial(fold.observe, block))

    def window(self, info: RunInfo) -> dict[str, Reading]:
        """Readings of the steps since the last call."""
        taken = {
            meter.name: self._run(meter, partial(_taken, meter, window, info))
            for meter, window, _ in self._folds
        }
        return {name: reading for name, reading in taken.items() if reading is not None}

    def fit(self, info: RunInfo) -> Mapping[str, OwnReading]:
        """Readings of all steps so far, as they are written."""
        return {
            meter.name: self._run(meter, partial(kept, meter, fold, info))
            or without_value(meter, switched_off(_part(meter), self._guard.faults[_part(meter)]))
            for meter, _, fold in self._folds
        }

    def _run(self, meter: Meter, function: Callable[[], T]) -> T | None:
        return self._guard.run(_part(meter), function)


def _taken(meter: Meter, window: Window, info: RunInfo) -> Reading:
    return plain(window.take(info)[meter.name])


class OwnFacts:
    """The facts of a user's own probes: a number that is finite, or not measured.

    A probe that puts anything else into a step is switched off, and no other part suffers.
    """

    def __init__(self, probes: Sequence[Probe], columns: tuple[str, ...], guard: Guard) -> None:
        self._guard = guard
        self._places = {
            probe.name: places
            for probe in probes
            if (places := [columns.index(fact) for fact in probe.facts if fact not in FACTS])
        }

    def settle(self, drafts: Sequence[Draft]) -> None:
        """Make the facts of these steps plain, before they are written."""
        for name, places in self._places.items():
            for draft in drafts:
                for place in places:
                    draft.facts[place] = self._plain(name, draft.facts[place])

    def _plain(self, name: str, value: object) -> float | None:
        if value is None or (type(value) is int and abs(value) <= _EXACT):
            return value
        return self._guard.run(name, partial(_fact, value))


_EXACT = 2**53
"""Whole numbers up to here survive the way through a float."""


def _fact(value: object) -> float | None:
    fact = number(value)
    return fact if math.isfinite(fact) else None


def switched_off(part: str, error: str) -> str:
    """Why a part that failed has measured nothing."""
    return f"not measured: {part} was switched off after an error ({error})"


def _part(meter: Meter) -> str:
    return f"meter {meter.name}"
