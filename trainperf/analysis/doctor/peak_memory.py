"""Check that nothing raises peak memory without need."""

from trainperf.analysis.doctor.base import Case, Outcome, passed, reason, to_audit, unknown
from trainperf.analysis.rules.memory.base import LEAST_S, LEAST_STEPS, long_enough
from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.units import size
from trainperf.core.readings import (
    MEMORY_PEAK_BYTES,
    MEMORY_SLOPE_BYTES_PER_STEP,
    RESIDENT_PEAK_BYTES,
)


FAILS_ON = (
    "out_of_memory",
    "graph_held",
    "leak",
    "validation_grad",
    "memory_limit",
    "fragmentation",
)


def peak_memory(case: Case) -> Outcome:
    """Peak memory is not raised by activations kept, temporaries or logging references.

    Fails on `out_of_memory`, `graph_held`, `leak`, `validation_grad`, `memory_limit` and
    `fragmentation`.  Unknown without an audit or device memory.
    """
    summary, ledger = case.summary, case.evidence.documents.memory
    peak, resident = summary.value(MEMORY_PEAK_BYTES), summary.value(RESIDENT_PEAK_BYTES)
    if ledger is None and peak is None and resident is None:
        return unknown("memory was not measured", case.loop.measures["memory"])
    if not long_enough(summary):
        enough = f"train for {LEAST_STEPS} steady steps and {LEAST_S:.0f} s"
        return unknown("too short to tell a leak from a warm-up", enough)
    slope = summary.value(MEMORY_SLOPE_BYTES_PER_STEP)
    if slope is None:
        why = reason(summary, MEMORY_SLOPE_BYTES_PER_STEP)
        return unknown(f"whether memory grows: {why}", case.loop.measures["memory"])
    if ledger is None and peak is None:
        # The resident set sees growth only: what it is made of, an audit tells.
        why = f"{size(resident or 0.0)} resident; no tensor was counted"
        return unknown(why, to_audit(case))
    activations = None if ledger is None else ledger.activations_bytes
    return passed(
        "" if ledger is None else f"{size(ledger.static_bytes)} of model and optimizer",
        "" if activations is None else f"{size(activations)} of activations at most",
        "" if peak is None else f"peak {size(peak)}",
        _growth(summary),
    )


def _growth(summary: Summary) -> str:
    """What the interval of the slope leaves: no growth that matters, the rules have looked."""
    slope = summary.readings[MEMORY_SLOPE_BYTES_PER_STEP]
    if slope.value is None or slope.low is None or slope.low <= 0:
        return "nothing grows from step to step"
    return f"{size(slope.value)} more per step: too little to matter"
