"""Check that nothing raises peak memory without need."""

from trainperf.analysis.doctor.base import Case, Outcome, passed, reason, to_audit, unknown
from trainperf.analysis.rules.base import value
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import size


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
    peak, resident = value(summary, "memory_peak_bytes"), value(summary, "resident_peak_bytes")
    if ledger is None and peak is None and resident is None:
        return unknown("memory was not measured", case.loop.measures["memory"])
    if summary.run.steady_steps < LIMITS.steps:
        return unknown("too few steady steps to see memory grow", "train past the warm-up")
    slope = value(summary, "memory_slope_bytes_per_step")
    if slope is None:
        said = reason(summary, "memory_slope_bytes_per_step")
        return unknown(f"whether memory grows: {said}", case.loop.measures["memory"])
    if ledger is None and peak is None:
        # The resident set sees growth only: what it is made of, an audit tells.
        said = f"{size(resident or 0.0)} resident; no tensor was counted"
        return unknown(said, to_audit(case))
    activations = None if ledger is None else ledger.activations_bytes
    return passed(
        "" if ledger is None else f"{size(ledger.static_bytes)} of model and optimizer",
        "" if activations is None else f"{size(activations)} of activations at most",
        "" if peak is None else f"peak {size(peak)}",
        _growth(summary),
    )


def _growth(summary: Summary) -> str:
    """What the interval of the slope leaves: no growth that matters, the rules have looked."""
    slope = summary.readings["memory_slope_bytes_per_step"]
    if slope.value is None or slope.low is None or slope.low <= 0:
        return "nothing grows from step to step"
    return f"{size(slope.value)} more per step: too little to matter"
