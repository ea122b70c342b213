"""Is the work cut into pieces too small to be worth their launch?"""

from trainperf.doctor.base import Case, Outcome, passed, refused, to_audit, unknown
from trainperf.results import Summary
from trainperf.rules.base import value
from trainperf.units import plural, share


RULES = ("launch_bound", "host_bound", "elementwise_chain", "attention", "optimizer_not_fused")


def small_operators(case: Case) -> Outcome:
    """Small ops could not be batched or fused to any gain."""
    bad = refused(case, RULES)
    if bad is not None:
        return bad
    audit, summary = case.evidence.documents.audit, case.summary
    bound, launching = value(summary, "host_bound_fraction"), _launching(summary)
    if audit is None and bound is None and not launching:
        return unknown("no step was audited or traced", to_audit(case))
    many = "" if audit is None else f"{plural(audit.calls, 'operator call')} a step"
    host = "" if bound is None else f"host-bound in {share(bound)} of the steps"
    return passed(many, host, launching)


def _launching(summary: Summary) -> str:
    known = summary.dimensions
    if known is None or known.launch is None:
        return ""
    return f"{share(known.launch)} of the step is launch overhead"
