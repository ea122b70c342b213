"""Check that launching does not dominate the work."""

from trainperf.analysis.doctor.base import Case, Outcome, not_judged, passed, to_audit, unknown
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
    dimensions, why = summary.dimensions, not_judged(case)
    traced = dimensions is not None and dimensions.basis.startswith("trace")
    launching = ""
    if dimensions is not None and dimensions.launch is not None:
        launching = f"{share(dimensions.launch)} of the step is launch overhead"
    if why and bound is None and not (traced and launching):
        return unknown(why, to_audit(case))
    many = "" if audit is None else f"{plural(audit.calls, 'operator call')} per step"
    host = "" if bound is None else f"host-bound in {share(bound)} of the steps"
    return passed(many, host, launching)
