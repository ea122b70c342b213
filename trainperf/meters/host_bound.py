"""Host-bound fraction: in how many steps did the device wait for the host?"""

import numpy as np

from trainperf.blocks import StepBlock
from trainperf.meters.base import Meter
from trainperf.stats.reductions import Ratio


HOST_BOUND_LEAD = 1
"""With at most one earlier mark outstanding the device has caught up with the host."""


class HostBound(Meter):
    """Share of steady steps at whose end of forward and backward the device had caught up.

    There the device waits for launches, Python or syncs, and a faster kernel gains nothing.
    Asynchronous devices only.
    """

    name = "host_bound_fraction"
    unit = "1"
    better = "lower"
    needs = ("lead_forward", "lead_backward")

    def observe(self, block: StepBlock) -> Ratio | None:
        """Steps with a lead of at most one mark over steps."""
        known = block.having("lead_forward", "lead_backward")
        forward = known.fact("lead_forward") if known else None
        backward = known.fact("lead_backward") if known else None
        if forward is None or backward is None:
            return None
        bound = np.maximum(forward, backward) <= HOST_BOUND_LEAD
        return Ratio(float(bound.sum()), float(len(bound)), len(bound))
