"""Memory growth and what holds it: shared by the rules of `memory`."""

import math
from dataclasses import dataclass

from trainperf.analysis.rules.base import Evidence, setting, worst
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.memory import Holder
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, size
from trainperf.core.readings import (
    MEMORY_PEAK_BYTES,
    MEMORY_SLOPE_BYTES_PER_STEP,
    RESIDENT_PEAK_BYTES,
    STEP_MEAN_S,
)


LEAST_STEPS, LEAST_S = 300, 30.0
"""Steady steps, and seconds of them, that it takes to tell a leak from a warm-up: oneDNN's cache of
primitives grew by megabytes a step over 72 steps, and by nothing over 1,500."""

GROWN_BYTES = 32 << 20
"""Less may be an allocator's (TraceML looks from 100 MB on)."""

DAY_S = 86_400.0

MATTERS_S = 7 * DAY_S
"""A fit of ordinary length is over before the memory is full later than this."""

FULL = 0.8
"""Part of the memory that a change may fill."""

HELD = 0.5
"""Share of the steps from which something is held, and of the growth that a container explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Memory that grows step by step, so fast that a fit of ordinary length does not end."""

    bytes_per_step: float
    low: float
    high: float
    """Ends of the 95 % interval of that."""
    room_bytes: float
    """Until the memory of the device, or of the machine, is full."""
    soon: bool
    """Whether it is full within a day of training."""


def growth(evidence: Evidence, *, cause_shown: bool = False) -> Growth | None:
    """The growth that matters; `None` where there is none, or not enough was recorded of it.

    Args:
        evidence: Of the run.
        cause_shown: Whether what grows is found, so that it cannot be a warm-up.
    """
    summary, room = evidence.summary, room_bytes(evidence)
    slope = summary.reading(MEMORY_SLOPE_BYTES_PER_STEP)
    if slope is None or slope.value is None or slope.low is None or slope.high is None:
        return None
    grown = slope.value * summary.run.steady_steps
    if slope.low <= 0 or grown < GROWN_BYTES or room is None:
        return None
    if not cause_shown and not long_enough(summary):
        return None
    if lasts_s(evidence, slope.value) > MATTERS_S:
        return None
    return Growth(
        bytes_per_step=slope.value,
        low=slope.low,
        high=slope.high,
        room_bytes=room,
        soon=lasts_s(evidence, slope.value) <= DAY_S,
    )


def long_enough(summary: Summary) -> bool:
    """Whether a run can tell a leak from a warm-up."""
    steps = summary.run.steady_steps
    return steps >= LEAST_STEPS and steps * (summary.value(STEP_MEAN_S) or 0.0) >= LEAST_S


def room_bytes(evidence: Evidence) -> float | None:
    """What the device, or on a CPU run the machine, has left at the peak."""
    summary = evidence.summary
    capacity = setting(summary, "device_memory_bytes")
    held = summary.value(MEMORY_PEAK_BYTES) or summary.value(RESIDENT_PEAK_BYTES)
    return None if capacity is None or held is None else max(0.0, capacity - held)


def room_for(summary: Summary, times: float) -> tuple[float, float] | None:
    """Peak and capacity of a rank in bytes, where all but the model may grow so many times.

    `None` where that might not fit, or is not known.  Parameters, gradients and two moments of them
    stay as they are; a fifth of the memory is left.
    """
    host = summary.run.device == "cpu"
    reading = RESIDENT_PEAK_BYTES if host else MEMORY_PEAK_BYTES
    peak, capacity = worst(summary, reading), setting(summary, "device_memory_bytes")
    if not peak or not capacity:
        return None
    if host:  # ranks of one host share its memory
        capacity /= max(1.0, setting(summary, "local_world_size") or summary.run.world_size)
    static = min(4 * (setting(summary, "gradient_bytes") or 0.0), peak)
    return (peak, capacity) if static + times * (peak - static) <= FULL * capacity else None


def lasts_s(evidence: Evidence, bytes_per_step: float) -> float:
    """Seconds of training until that room is filled at so much a step."""
    room, step_s = room_bytes(evidence), evidence.summary.value(STEP_MEAN_S)
    if room is None or step_s is None or bytes_per_step <= 0:
        return math.inf
    return room / bytes_per_step * step_s


def graphs_held(evidence: Evidence) -> Holder | None:
    """A container that has an autograd graph of nearly every step; `None` if none is known."""
    memory, steps = evidence.documents.memory, evidence.summary.run.steps
    if memory is None or steps < LIMITS.steps:
        return None
    return next((holder for holder in memory.held if holder.graphs >= HELD * steps), None)


def gathered(evidence: Evidence, leak: Growth) -> Holder | None:
    """A container that has something of nearly every step, and enough to explain the growth."""
    memory, run = evidence.documents.memory, evidence.summary.run
    for holder in memory.held if memory is not None else ():
        explains = holder.size_bytes >= HELD * leak.low * run.steady_steps
        if holder.count >= HELD * run.steps and explains:
            return holder
    return None


def pace(leak: Growth) -> str:
    """How fast, and how long it can go on: each with its interval."""
    soonest, latest = leak.room_bytes / leak.high, leak.room_bytes / leak.low
    return (
        f"{size(leak.bytes_per_step)} per step (95 % CI {size(leak.low)}–{size(leak.high)}): "
        f"memory is full in {count(round(leak.room_bytes / leak.bytes_per_step, -2))} steps "
        f"({count(round(soonest, -2))}–{count(round(latest, -2))})"
    )


def holding(holder: Holder) -> str:
    """Who holds what, in one line."""
    graphs = f", {count(holder.graphs)} with their graph" if holder.graphs else ""
    named = f"{holder.kind} {holder.name}" if holder.name else f"an unnamed {holder.kind}"
    held = f"{count(holder.count)} tensors or arrays{graphs}"
    return f"{named} holds {held}: {size(holder.size_bytes)}"
