"""Does the step stop to look at a value?"""

from trainperf.doctor.base import AUDIT, Case, Outcome, passed, refused, unknown
from trainperf.units import count


RULES = ("hidden_syncs",)


def hot_path(case: Case) -> Outcome:
    """No `.item()`, print or CPU copy in the hot path."""
    bad = refused(case, RULES)
    if bad is not None:
        return bad
    evidence = case.evidence
    calls = [
        (rank.totals.item_calls or 0.0, rank.totals.sync_calls or 0.0)
        for report in evidence.captures
        for rank in report.ranks
    ]
    traced = ""
    if calls:
        items, syncs = max(calls)
        traced = f"{count(items)} .item() and {count(syncs)} synchronising calls a traced step"
    audit = evidence.documents.audit
    if audit is not None:
        looked = "no operator of the audited step gives a value to the host from your code"
        return passed(looked, traced)
    if traced:
        return passed(traced)
    return unknown("no step was audited or traced", AUDIT)
