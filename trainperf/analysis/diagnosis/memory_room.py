"""Room in memory: whether more activations would fit."""

from trainperf.analysis.diagnosis.account import StepAccount
from trainperf.analysis.diagnosis.facts import Facts


FULL = 0.8
"""Part of the memory that a change may fill."""


def room_for(
    account: StepAccount, facts: Facts, grown: float = 1.0, more_bytes: float = 0.0
) -> tuple[float, float] | None:
    """Peak and capacity of a rank in bytes, where more activations would fit.

    `None` where they might not, or that is not known.  Parameters, gradients and two moments of
    them stay as they are; a fifth of the memory is left.

    Args:
        account: Of the step.
        facts: Of the run.
        grown: How many times as much all but the model may take.
        more_bytes: What comes on top of that.
    """
    peak, capacity = facts.peak_bytes, facts.number("device_memory_bytes")
    if not peak or not capacity:
        return None
    if account.device is None or facts.run.backend.unified:  # ranks of one host share its memory
        capacity /= max(1.0, facts.number("local_world_size") or facts.run.world_size)
    static = min(4 * (facts.number("gradient_bytes") or 0.0), peak)
    needed = static + grown * (peak - static) + more_bytes
    return (peak, capacity) if needed <= FULL * capacity else None
