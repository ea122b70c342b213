"""Check that traces support the first finding."""

from trainperf.analysis.doctor.base import (
    Case,
    Outcome,
    failed,
    not_applicable,
    passed,
    to_trace,
    unknown,
)
from trainperf.analysis.rules import trace_time
from trainperf.analysis.rules.base import TraceTime
from trainperf.analysis.summary.captures import disagreements
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import share
from trainperf.traces.capture_files import CaptureReport
from trainperf.traces.results import RankTrace, TraceTotals


def profiler_evidence(case: Case) -> Outcome:
    """Profiler evidence supports the current direction.

    Fails when records and trace disagree, or the trace shows less than half of what the first
    finding claims.  Unknown without a trace.

    Wrong where: the trace is of steps that are unlike the steady ones.
    To confirm: a second capture of other steps.
    """
    apart = disagreements(case.summary.traces)
    if apart:
        return failed("find out which of the two is wrong before you act on either", *apart)
    first = next((f for f in case.summary.findings if _asks_for_a_change(f)), None)
    if not case.evidence.captures:
        return _audited(case, first)
    report = case.evidence.captures[-1]
    traced = next((trace.answer for trace in reversed(case.summary.traces) if trace.answer), "")
    if first is None:
        return passed("no change is suggested", traced or report.answer)
    traced_share = _traced_share(report, first)
    if traced_share is None:
        return not_applicable(f"{first.title}: no trace of a few steps can show that")
    evidence = f"{first.title}; the trace shows {share(traced_share)}"
    # A trace of a few steps supports a share that it sees at least half of.
    if traced_share < (first.fraction or LIMITS.notable) / 2:
        return failed("look at the trace before you act: trainperf trace", evidence, report.answer)
    return passed(evidence, report.answer)


def _asks_for_a_change(finding: Finding) -> bool:
    """What gains something, or an unknown amount that matters."""
    return bool(finding.fraction) or (finding.fraction is None and finding.severity != "low")


def _audited(case: Case, first: Finding | None) -> Outcome:
    """An audit is a profile of the operators, and of nothing else."""
    if (
        first is not None
        and trace_time(first) == "operators"
        and case.evidence.documents.audit is not None
    ):
        return passed(f"{first.title}; the audited step names the operators", *first.evidence[:1])
    return unknown("no trace was recorded", to_trace(case))


def _traced_share(report: CaptureReport, finding: Finding) -> float | None:
    """The largest share of a step that any rank's trace has for it; `None` if it cannot say."""
    time = trace_time(finding)
    shares = [None if time is None else _share(rank, time) for rank in report.ranks]
    return max((part for part in shares if part is not None), default=None)


def _share(rank: RankTrace, time: TraceTime) -> float | None:
    totals = rank.totals
    if time == "data_wait":
        waited_s = totals.data_wait_exposed_s if rank.device_worked else totals.data_wait_s
        return _of_step(waited_s or 0.0, totals)
    if time == "communication":
        spent_s = totals.comm_s if totals.comm_exposed_s is None else totals.comm_exposed_s
        return _of_step(spent_s or 0.0, totals)
    if not rank.device_worked:
        operators_s = totals.cpu_op_s if time == "operators" else None
        return _of_step(operators_s, totals) if operators_s else None
    if time == "host":
        return (totals.idle_host_bound_fraction or 0.0) + (totals.idle_sync_fraction or 0.0)
    return totals.compute_fraction


def _of_step(spent_s: float, totals: TraceTotals) -> float | None:
    return spent_s / totals.step_s if totals.step_s else None
