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


LEAK_BYTES = 32 << 20
"""Growth over the steady steps; less may be an allocator's (TraceML looks from 100 MB on)."""

LEAK_STEPS = 100_000
"""A fit of ordinary length; memory that is full later is no leak that matters."""

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
    slope, capacity = (
        summary.reading(MEMORY_SLOPE_BYTES_PER_STEP),
        setting(summary, "device_memory_bytes"),
    )
    if slope is None or slope.value is None or slope.low is None or slope.high is None:
        return None
    grown = slope.value * summary.run.steady_steps
    if slope.low <= 0 or grown < LEAK_BYTES or summary.run.steady_steps < LIMITS.steps:
        return None
    held = summary.value(MEMORY_PEAK_BYTES) or summary.value(RESIDENT_PEAK_BYTES)
    if capacity is None or held is None:
        return None
    left = max(0.0, capacity - held) / slope.value
    if left > LEAK_STEPS:
        return None
    return Growth(bytes_per_step=slope.value, low=slope.low, high=slope.high, steps_left=left)


def graphs_held(evidence: Evidence) -> Holder | None:
    """A container that has an autograd graph of nearly every step; `None` if none is known."""
    memory, steps = evidence.documents.memory, evidence.summary.run.steps
    if memory is None or steps < LIMITS.steps:
        return None
    return next((holder for holder in memory.held if holder.graphs >= HELD * steps), None)


def gathered(evidence: Evidence, trend: Growth) -> Holder | None:
    """A container that has something of nearly every step, and enough to explain the growth."""
    memory, steps = evidence.documents.memory, evidence.summary.run.steps
    least = HELD * trend.low * evidence.summary.run.steady_steps
    fits = (
        holder
        for holder in (memory.held if memory is not None else ())
        if holder.count >= HELD * steps and holder.size_bytes >= least
    )
    return next(fits, None)


def pace(trend: Growth) -> str:
    """How fast, and how long it can go on."""
    return (
        f"{size(trend.bytes_per_step)} per step (95 % CI {size(trend.low)}–{size(trend.high)}): "
        f"memory is full in {count(round(trend.steps_left, -2))} steps"
    )


def holding(holder: Holder) -> str:
    """Who holds what, in one line."""
    graphs = f", {count(holder.graphs)} with their graph" if holder.graphs else ""
    named = f"{holder.kind} {holder.name}" if holder.name else f"an unnamed {holder.kind}"
    held = f"{count(holder.count)} tensors or arrays{graphs}"
    return f"{named} holds {held}: {size(holder.size_bytes)}"
