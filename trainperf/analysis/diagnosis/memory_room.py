"""Room in memory: whether more activations would fit."""

from trainperf.analysis.diagnosis.account import StepAccount
from trainperf.analysis.diagnosis.facts import Facts


FULL = 0.8
"""Part of the memory that a change may fill."""


def room_beside(account: StepAccount, facts: Facts, more_bytes: float) -> bool:
    """Whether so many bytes more than at the peak would fit; not where that is not known."""
    room = room_for(account, facts, 1.0)
    return room is not None and room[0] + more_bytes <= FULL * room[1]


def room_for(account: StepAccount, facts: Facts, grown: float) -> tuple[float, float] | None:
    """Peak and capacity of a rank in bytes, where all but the model may grow so many times.

    `None` where that might not fit, or is not known.  Parameters, gradients and two moments of them
    stay as they are; a fifth of the memory is left.
    """
    peak, capacity = facts.peak_bytes, facts.number("device_memory_bytes")
    if not peak or not capacity:
        return None
    if account.device is None or facts.device.unified:  # ranks of one host share its memory
        capacity /= max(1.0, facts.number("local_world_size") or facts.run.world_size)
    static = min(4 * (facts.number("gradient_bytes") or 0.0), peak)
    return (peak, capacity) if static + grown * (peak - static) <= FULL * capacity else None
