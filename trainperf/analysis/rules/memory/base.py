"""Memory growth and what holds it: shared by the rules of `memory`."""

from dataclasses import dataclass

from trainperf.analysis.rules.base import Evidence, setting
from trainperf.core.artifacts.memory import Holder
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, size
from trainperf.core.readings import (
    MEMORY_PEAK_BYTES,
    MEMORY_SLOPE_BYTES_PER_STEP,
    RESIDENT_PEAK_BYTES,
)


HELD = 0.5
"""Share of the steps from which something is held, and of the growth that a container explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Memory that grows step by step, so fast that a fit of ordinary length does not end."""

    bytes_per_step: float
    low: float
    high: float
    """Ends of the 95 % interval of that."""
    steps_left: float
    """Until the memory of the device, or of the machine, is full."""


def growth(evidence: Evidence) -> Growth | None:
    """The growth that matters; `None` where there is none, or not enough was seen of it."""
    summary = evidence.summary
    slope = summary.reading(MEMORY_SLOPE_BYTES_PER_STEP)
    capacity = setting(summary, "device_memory_bytes")
    if slope is None or slope.value is None or slope.low is None or slope.high is None:
        return None
    grown = slope.value * summary.run.steady_steps
    # Less than 32 MiB may be an allocator's (TraceML looks from 100 MB on).
    if slope.low <= 0 or grown < 32 << 20 or summary.run.steady_steps < LIMITS.steps:
        return None
    held = summary.value(MEMORY_PEAK_BYTES) or summary.value(RESIDENT_PEAK_BYTES)
    if capacity is None or held is None:
        return None
    left = max(0.0, capacity - held) / slope.value
    if left > 100_000:  # longer than an ordinary fit: no leak that matters
        return None
    return Growth(bytes_per_step=slope.value, low=slope.low, high=slope.high, steps_left=left)


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
    """How fast, and how long it can go on."""
    return (
        f"{size(leak.bytes_per_step)} per step (95 % CI {size(leak.low)}–{size(leak.high)}): "
        f"memory is full in {count(round(leak.steps_left, -2))} steps"
    )


def holding(holder: Holder) -> str:
    """Who holds what, in one line."""
    graphs = f", {count(holder.graphs)} with their graph" if holder.graphs else ""
    named = f"{holder.kind} {holder.name}" if holder.name else f"an unnamed {holder.kind}"
    held = f"{count(holder.count)} tensors or arrays{graphs}"
    return f"{named} holds {held}: {size(holder.size_bytes)}"
