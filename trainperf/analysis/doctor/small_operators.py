"""Check that launching does not dominate the work."""

from trainperf.analysis.doctor.base import Case, Outcome, not_judged, passed, to_audit, unknown
from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.units import plural, share
from trainperf.core.readings import HOST_BOUND_FRACTION


FAILS_ON = ("launch_bound", "host_bound", "elementwise_chain", "attention", "optimizer_not_fused")


def small_operators(case: Case) -> Outcome:
    """Small ops could not be batched or fused to any gain.

    Fails on `launch_bound`, `host_bound`, `elementwise_chain`, `attention` and
    `optimizer_not_fused`.  Unknown without an audit, a trace or a GPU.
    """
    audit, summary = case.evidence.documents.audit, case.summary
    bound = summary.value(HOST_BOUND_FRACTION) if summary.run.steady_steps else None
    traced, why = _traced(case), not_judged(case)
    if why and bound is None and not traced:
        return unknown(why, to_audit(case))
    many = "" if audit is None else f"{plural(audit.calls, 'operator call')} per step"
    host = "" if bound is None else f"host-bound in {share(bound)} of the steps"
    return passed(many, host, traced or _launching(summary))


def _traced(case: Case) -> str:
    """What a trace of a device says of launching; empty without one."""
    dimensions = case.summary.dimensions
    return (
        ""
        if dimensions is None or not dimensions.basis.startswith("trace")
        else _launching(case.summary)
    )


def _launching(summary: Summary) -> str:
    dimensions = summary.dimensions
    if dimensions is None or dimensions.launch is None:
        return ""
    return f"{share(dimensions.launch)} of the step is launch overhead"
