"""Check that no line of the step reads a value back."""

from trainperf.analysis.doctor.base import Case, Outcome, failed, passed, to_audit, unknown
from trainperf.analysis.rules.host.base import reads
from trainperf.core.formatting.units import count, plural


FAILS_ON = ("hidden_syncs", "host_code")


def hot_path(case: Case) -> Outcome:
    """No `.item()`, print or CPU copy in the hot path.

    Fails on `hidden_syncs` and `host_code`, and when a line of yours reads a value in the audited
    step: on a CPU too, where it costs little, because the same script stops a GPU.  Unknown without
    an audit or a trace.
    """
    audit, traced = case.evidence.documents.audit, _traced(case)
    if audit is None:
        return (
            passed(traced) if traced else unknown("no step was audited or traced", to_audit(case))
        )
    rows = sorted(reads(audit.operators), key=lambda row: -row.calls)
    if rows:
        lines = [f"{row.line}: {plural(row.calls, 'read')} per step" for row in rows[:3]]
        cheap = "on a CPU they cost little; on a GPU each one stops the step"
        action = "keep it a tensor (loss.detach(), torch.where) and read it every n-th step"
        return failed(action, *lines, cheap if case.summary.run.device == "cpu" else "")
    return passed("your code reads no value in the audited step", traced)


def _traced(case: Case) -> str:
    """What the traces counted on the rank where it is most; empty without traces."""
    calls = [
        (rank.totals.item_calls or 0.0, rank.totals.sync_calls or 0.0)
        for report in case.evidence.captures
        for rank in report.ranks
    ]
    if not calls:
        return ""
    items, syncs = max(calls)
    return f"{count(items)} .item() and {count(syncs)} synchronising calls per traced step"
