"""What do the numbers say now?  The readings of the steps since they were last shown."""

from collections.abc import Sequence

from trainperf.meters.base import Meter
from trainperf.meters.fold import Fold, Reading, readings
from trainperf.records import RunInfo, StepBlock


class Window:
    """Folds blocks until somebody takes the readings, then begins anew."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._fold = Fold(meters)

    def observe(self, block: StepBlock) -> None:
        """Take the next block."""
        self._fold.observe(block)

    @property
    def steps(self) -> int:
        """Steps folded since the last take."""
        return self._fold.steps

    def take(self, info: RunInfo) -> dict[str, Reading]:
        """Readings of the window; the next one begins."""
        now = readings([self._fold], info)
        self._fold.reset()
        return now
