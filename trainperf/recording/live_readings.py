"""Readings while a fit goes on: of the steps since they were last shown, and of the whole fit."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from trainperf.core.steps.block import BLOCK_STEPS, StepBlock
from trainperf.core.steps.records import OwnReading, RunInfo
from trainperf.meters.base import Meter, Scope
from trainperf.meters.fold import Fold, Reading, readings
from trainperf.meters.own import kept, without_value
from trainperf.recording.guard import Guard


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
        taken = (self._run(name, partial(w.take, info)) for name, w in self._windows.items())
        return {name: reading for latest in taken if latest for name, reading in latest.items()}

    def fit(self, info: RunInfo) -> Mapping[str, OwnReading]:
        """Readings of all steps so far, as they are written."""
        return {name: self._kept(fold, info) for name, fold in self._fits.items()}

    def _kept(self, fold: Fold, info: RunInfo) -> OwnReading:
        meter = fold.meters[0]
        reading = self._run(meter.name, partial(kept, meter, fold, info))
        if reading is not None:
            return reading
        part = _part(meter.name)
        return without_value(meter, switched_off(part, self._guard.faults.get(part, "")))

    def _run(self, name: str, function: Callable[[], T]) -> T | None:
        return self._guard.run(_part(name), function)


def switched_off(part: str, error: str) -> str:
    """Why a part that failed has measured nothing."""
    return f"not measured: {part} was switched off after an error ({error})"


def _part(name: str) -> str:
    return f"meter {name}"
