"""What do the numbers say now?  Of the steps since they were last shown, or of the whole fit."""

from collections.abc import Sequence

from trainperf.core.steps.block import BLOCK_STEPS, StepBlock
from trainperf.core.steps.records import RunInfo
from trainperf.meters.base import Meter, Scope
from trainperf.meters.fold import Fold, Reading, readings


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
