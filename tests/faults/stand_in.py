"""Computing that leaves the processor to others: an operator that only takes its time.

What others do on the machine hardly changes how long it takes.  The audit and the sampler of lines
see an operator; a `time.sleep` in a model is Python that takes the step, and is found as that.
"""

import time

import torch


_LIBRARY = torch.library.Library("faults", "DEF")
_LIBRARY.define("compute(float seconds) -> ()")
# The built-in function itself: the sampler sees no frame below the operator's.
_LIBRARY.impl("compute", time.sleep, "CompositeExplicitAutograd")


def compute(seconds: float) -> None:
    """As a device would for so long."""
    torch.ops.faults.compute(seconds)
