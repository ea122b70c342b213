"""A probe of the user's takes a millisecond of every step: measuring is what costs."""

import time
from pathlib import Path

from faults.base import script
from faults.calm import calm, ready
from faults.loops import plain
from trainperf.recording.probes.base import Batch, Probe


class Slow(Probe):
    """Measures nothing, slowly."""

    name = "slow"

    def micro_batch(self, batch: Batch, loss: object) -> None:
        """Nothing, after a while."""
        del batch, loss
        time.sleep(0.001)


@script("own_cost")
def _train(out: Path, *, fixed: bool) -> None:
    plain(out, model=calm(), source=ready(100), probes=[] if fixed else [Slow()])
