"""Steps take twice as long once three were profiled, as where CUPTI stays loaded."""

from pathlib import Path
from typing import Any

from faults.base import Script, train
from faults.calm import Calm, Ready, calm
from faults.stand_in import compute
from trainperf.lightning import ScheduledProfiler


class Hindered(Calm):
    """Takes longer from a batch on."""

    def __init__(self, since: int) -> None:
        super().__init__(calm())
        self._since = since

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The loss of a batch."""
        if batch_idx >= self._since:
            compute(0.006)
        return super().training_step(batch, batch_idx)


def _train(out: Path, *, fixed: bool) -> None:
    number = 160
    profiler = ScheduledProfiler(wait=58, warmup=1, active=3, analyse=False)
    module = Hindered(number if fixed else 62)
    train(out, module, Ready(number), audit_at=None, callbacks=[profiler])


SCRIPT = Script(expected=("slower_since",), train=_train, same_work=False)
