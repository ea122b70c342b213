"""Readings while a fit goes on: of the steps since they were last shown, and of the whole fit.

What a user's own meters and probes give is made plain numbers here, before anything else meets it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from trainperf.core.steps.block import BLOCK_STEPS, StepBlock
from trainperf.core.steps.records import FACTS, OwnReading, RunInfo
from trainperf.meters.base import Meter, Scope
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

    Folding costs by the call, not by the step, so it is put off until a whole block has come
    together or somebody wants to know.
    """

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._fold = Fold([meter for meter in meters if meter.scope is not Scope.ALL])
        self._whole = Fold([meter for meter in meters if meter.scope is Scope.ALL])
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
        now = {**readings([self._fold], info), **readings([self._whole], info)}
        self._fold.reset()
        self.steps = 0
        return now

    def _fold_gathered(self) -> None:
        if self._gathered:
            block = StepBlock.joined(self._gathered)
            self._fold.observe(block)
            self._whole.observe(block)
            self._gathered.clear()


class OwnMeters:
    """A user's own meters, each behind the guard by itself: a fault switches off that one only.

    They are also folded over the whole fit, which nobody can do later (`trainperf.meters.own`).
    """

    def __init__(self, meters: Sequence[Meter], guard: Guard) -> None:
        self._guard = guard
        self._windows = {meter.name: Window([meter]) for meter in meters}
        self._fits = {meter.name: Fold([meter]) for meter in meters}

    def observe(self, block: StepBlock) -> None:
        """Take the next block."""
        for name, window in self._windows.items():
            self._run(name, partial(window.observe, block))
            self._run(name, partial(self._fits[name].observe, block))

    def window(self, info: RunInfo) -> dict[str, Reading]:
        """Readings of the steps since the last call."""
        taken = {name: self._run(name, partial(self._take, name, info)) for name in self._windows}
        return {name: reading for name, reading in taken.items() if reading is not None}

    def fit(self, info: RunInfo) -> Mapping[str, OwnReading]:
        """Readings of all steps so far, as they are written."""
        return {name: self._kept(fold, info) for name, fold in self._fits.items()}

    def _take(self, name: str, info: RunInfo) -> Reading:
        return plain(self._windows[name].take(info)[name])

    def _kept(self, fold: Fold, info: RunInfo) -> OwnReading:
        meter = fold.meters[0]
        reading = self._run(meter.name, partial(kept, meter, fold, info))
        if reading is not None:
            return reading
        part = _part(meter.name)
        return without_value(meter, switched_off(part, self._guard.faults.get(part, "")))

    def _run(self, name: str, function: Callable[[], T]) -> T | None:
        return self._guard.run(_part(name), function)


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


def _part(name: str) -> str:
    return f"meter {name}"
