"""Account and facts of a capture: a recorded trace is judged by the detectors of a run."""

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from trainperf.analysis.diagnosis.account import DeviceAccount, StepAccount
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.findings import diagnose
from trainperf.analysis.summary.schema import RunFacts, Summary
from trainperf.core.findings import LIMITS, Finding, ranked
from trainperf.core.groups import grouped
from trainperf.core.loop_kind import PLAIN, LoopKind
from trainperf.traces.results import RankTrace, TraceReport


Report = TypeVar("Report", bound=TraceReport)


def diagnosed(report: Report, loop: LoopKind = PLAIN) -> Report:
    """The report with its findings in the order in which to act: each of the rank it costs most.

    Args:
        report: Of all ranks of a capture.
        loop: What the training's loop is, where that is known.
    """
    of_ranks = grouped(
        (finding.id, finding) for rank in report.ranks for finding in _of_rank(rank, report, loop)
    )
    dearest = [max(alike, key=lambda each: each.fraction or 0.0) for alike in of_ranks.values()]
    return msgspec.structs.replace(report, findings=ranked(dearest))


def account_of(rank: RankTrace) -> StepAccount:
    """The mean recorded step of a rank: the host's waits, and what its device waited for."""
    totals, step_s = rank.totals, rank.period_s
    device = DeviceAccount(
        data_s=totals.data_wait_exposed_s or 0.0,
        host_s=(totals.idle_host_bound_fraction or 0.0) * step_s,
        value_s=(totals.idle_sync_fraction or 0.0) * step_s,
        copies_s=(totals.h2d_s or 0.0) * (1.0 - (totals.h2d_overlap_fraction or 0.0)),
        communication_s=totals.comm_exposed_s,
        busy_s=totals.gpu_busy_s,
    )
    worked = rank.device_worked
    computing_s = (totals.compute_fraction or 0.0) * step_s if worked else totals.cpu_op_s
    return StepAccount(
        step_s=step_s,
        # A trace of a few steps shows directly what it shows: its phases are not told apart.
        loop_s={
            "data_wait": totals.data_wait_s or 0.0,
            "h2d": 0.0,
            "forward": computing_s or 0.0,
        },
        device=device if worked else None,
        fit_s=step_s,
        steps_s=step_s,
        least=LIMITS.worth,
    )


def _of_rank(rank: RankTrace, report: TraceReport, loop: LoopKind) -> Iterator[Finding]:
    """Those of a rank, with its number where there are several."""
    steps, several = len(rank.steps), len(report.ranks) > 1
    run = RunFacts(config={"loop": loop.name}, steps=steps, steady_steps=steps)
    facts = Facts(summary=Summary(run=run), traces=(rank,), stragglers=report.stragglers)
    for finding in diagnose(account_of(rank), facts)[0]:
        evidence = list(finding.evidence)
        if several and rank.rank is not None and finding.id != "straggler":
            evidence[0] = f"rank {rank.rank}: {evidence[0]}"
        yield msgspec.structs.replace(finding, evidence=tuple(evidence))
