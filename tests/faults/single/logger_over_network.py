"""Every step's values are sent somewhere, and the loop waits until they have arrived."""

import time
from pathlib import Path
from typing import Any

from faults.base import script, train
from faults.calm import Ready, calm
from faults.logs import Logs, Nowhere


class Slow(Nowhere):
    """Takes as long as a request to a server nearby."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Nothing, after a while."""
        del metrics, step
        time.sleep(0.004)


@script("loop")
def _train(out: Path, *, fixed: bool) -> None:
    module: Any = Logs(1)
    module.body = calm()
    every = 50 if fixed else 1
    train(out, module, Ready(80), audit_at=None, logger=Slow(), log_every_n_steps=every)
