"""Does what a profiler saw agree with what is to be changed first?"""

from trainperf.analysis.doctor.base import (
    Case,
    Outcome,
    failed,
    not_applicable,
    passed,
    to_trace,
    unknown,
)
from trainperf.analysis.summary.trace_agreement import disagreements
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import share
from trainperf.traces.capture_files import CaptureReport
from trainperf.traces.results import RankTrace


HALF = 0.5
"""A trace of a few steps supports a share that it sees at least half of."""

DATA = ("data_wait",)
COMMUNICATION = ("straggler", "allreduce_tail", "no_sync")
HOST = ("host_bound", "launch_bound", "hidden_syncs", "host_code")
OPERATORS = (
    "attention",
    "autocast_casts",
    "channels_last",
    "constant_rebuilt",
    "elementwise_chain",
    "layout_copies",
    "matmul_precision",
    "matmul_shapes",
    "optimizer_not_fused",
)
"""Findings by the time that a trace would have to show for them; others it cannot judge."""


def profiler_evidence(case: Case) -> Outcome:
    """Profiler evidence supports the current direction."""
    apart = disagreements(case.summary.traces)
    if apart:
        return failed("find out which of the two is wrong before you act on either", *apart)
    first = next((f for f in case.summary.findings if _asks_for_a_change(f)), None)
    if not case.evidence.captures:
        return _audited(case, first)
    report = case.evidence.captures[-1]
    traced = next((one.answer for one in reversed(case.summary.traces) if one.answer), "")
    if first is None:
        return passed("nothing is to be changed", traced or report.answer)
    seen = _seen(report, first)
    if seen is None:
        return not_applicable(f"{first.title}: no trace of a few steps can show that")
    said = f"{first.title}; the trace shows {share(seen)}"
    if seen < HALF * (first.fraction or LIMITS.notable):
        return failed("look at the trace before you act: trainperf trace", said, report.answer)
    return passed(said, report.answer)


def _asks_for_a_change(finding: Finding) -> bool:
    """What gains something, or an unknown amount that matters."""
    return bool(finding.fraction) or (finding.fraction is None and finding.severity != "low")


def _audited(case: Case, first: Finding | None) -> Outcome:
    """An audit is a profile of the operators, and of nothing else."""
    if first is not None and first.id in OPERATORS and case.evidence.documents.audit is not None:
        return passed(f"{first.title}; the audited step names the operators", *first.evidence[:1])
    return unknown("no trace was recorded", to_trace(case))


def _seen(report: CaptureReport, finding: Finding) -> float | None:
    """The largest share of a step that any rank's trace has for it; `None` if it cannot say."""
    shares = [_share(rank, finding.id) for rank in report.ranks]
    return max((one for one in shares if one is not None), default=None)


def _share(rank: RankTrace, finding: str) -> float | None:
    totals = rank.totals
    if finding in DATA:
        waited_s = totals.data_wait_exposed_s if rank.device_worked else totals.data_wait_s
        return (waited_s or 0.0) / totals.step_s if totals.step_s else None
    if finding in COMMUNICATION:
        spent_s = totals.comm_s if totals.comm_exposed_s is None else totals.comm_exposed_s
        return (spent_s or 0.0) / totals.step_s if totals.step_s else None
    if not rank.device_worked:
        operators_s = totals.cpu_op_s if finding in OPERATORS else None
        return operators_s / totals.step_s if operators_s and totals.step_s else None
    if finding in HOST:
        return (totals.idle_host_bound_fraction or 0.0) + (totals.idle_sync_fraction or 0.0)
    return totals.compute_fraction if finding in OPERATORS else None
