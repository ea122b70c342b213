"""Rule about Python in forward while no operator runs."""

from trainperf.analysis.rules.base import Evidence, TraceTime, leaves_cold_caches
from trainperf.analysis.rules.fit.noisy_run import is_noisy
from trainperf.analysis.rules.host.base import LOOP, HostLines, host_lines, read_in_loops
from trainperf.analysis.rules.host.metrics_every_batch import metric_rows
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import duration, share
from trainperf.core.readings import PHASE_FORWARD_S


TRACE_TIME: TraceTime = "host"


@leaves_cold_caches
def host_code(evidence: Evidence) -> Finding | None:
    """Much time passes before an operator that is called a few times: print, numpy, files, sleep.

    Python around many small operators is not meant: that is what launching them takes.

    Wrong where: the audited step was interrupted there, by another process or by printing once.
    To confirm: a second audit at another step (`--audit-at`); the line's samples in `report
    --full`.
    """
    host = host_lines(evidence)
    row = None if host is None else _latest(host)
    if host is None or row is None:
        return None
    lost = host.before([row])
    # One audited step may have been interrupted there: the steady ones must lack that time too.
    # Where steps differ widely by themselves, others use the machine and interrupt it anywhere.
    least = 0.30 if is_noisy(evidence.summary) else LIMITS.notable
    if min(lost, _unexplained(evidence, host)) < least:
        return None
    return Finding(
        id="host_code",
        title=f"Python in forward takes {share(lost)} of the step while no operator runs",
        advice="Move Python out of forward",
        evidence=(
            f"{duration(lost * host.step_s)} per step pass before {row.short_name} at {row.line}",
            "no torch operator runs there: print, numpy, files, waiting",
        ),
        action="do it every n-th step (if batch_idx % 50 == 0: …), in the dataset's workers, or "
        "after the fit",
        **costs(lost, confidence="medium"),
        where=row.line or "",
        confirm="phase_forward_s falls by about that much; trainperf compare BEFORE AFTER",
    )


def _latest(host: HostLines) -> OperatorUse | None:
    """The operator that most time passes before, of those that no other rule speaks about."""
    others = {id(row) for row in (*read_in_loops(host.rows), *metric_rows(host.rows))}
    mine = [
        row
        for row in host.rows
        if row.part == "forward"
        and row.line
        and row.calls < LOOP
        and not row.logs
        and id(row) not in others
        # Autograd begins with it, after whatever lies between forward and backward.
        and not row.name.startswith("aten.ones_like")
    ]
    # Looked up, because a sum over all rows for each row takes a second where there are thousands.
    befores = {id(row): part for row, part in zip(host.rows, host.befores, strict=True)}
    return max(mine, key=lambda row: befores[id(row)], default=None)


def _unexplained(evidence: Evidence, host: HostLines) -> float:
    """Share of a steady step in forward that the operators, as the audit timed them, leave."""
    forward_s = evidence.summary.value(PHASE_FORWARD_S) or 0.0
    run_s = sum(row.host_s for row in host.rows if row.part == "forward")
    return max(0.0, forward_s - run_s) / host.step_s
