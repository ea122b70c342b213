"""Rule about values read back to the host, by line.

A value that Python wants to know stops the host until the device has computed it.  On a CPU there
is nobody to wait for: there it matters only where Python loops over such values.
"""

from collections.abc import Sequence

from trainperf.analysis.rules.base import Evidence, TraceTime, leaves_cold_caches
from trainperf.analysis.rules.host.base import READS, heaviest, host_lines, read_in_loops, reads
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import LIMITS, Finding, amdahl, costs, severity
from trainperf.core.formatting.units import duration, plural, share
from trainperf.core.loop_kind import LIGHTNING
from trainperf.core.readings import HOST_BOUND_FRACTION
from trainperf.traces.results import RankTrace


TRACE_TIME: TraceTime = "host"


@leaves_cold_caches
def hidden_syncs(evidence: Evidence) -> Finding | None:
    """Lines of the step read values back, and settings do so in every batch.

    On a CPU, where nobody waits for a device, it is the time of Python loops over values, from an
    audit. On a device: the lines of the audit that read values back, the settings that do so in
    every batch, and from a trace the time in which host and device both wait, which is the bound.

    Wrong where: the value decides the next operation, so that somebody has to wait for it.
    To confirm: `trainperf.smoke.assert_no_sync(step, batch)`; idle time while synchronising in a
    trace.
    """
    on_cpu = evidence.summary.run.device == "cpu"
    return _looping(evidence) if on_cpu else _waiting(evidence)


def _looping(evidence: Evidence) -> Finding | None:
    """On a CPU: Python decides value by value what one operator could do for all."""
    host = host_lines(evidence)
    if host is None:
        return None
    rows = read_in_loops(host.rows)
    lost = host.share(rows)
    if lost < LIMITS.notable:
        return None
    values = plural(sum(row.calls for row in reads(rows)), "value")
    return Finding(
        id="hidden_syncs",
        title=f"a Python loop over tensor values takes {share(lost)} of the step",
        advice="Let tensors decide, not Python",
        evidence=(
            f"{values} read one by one per step (.item(), float(), print or an if on a tensor)",
            *host.in_words(rows),
        ),
        action="one operator for all of them instead of the loop, e.g. torch.where(scores > 0, "
        "values, 0).sum(); print every n-th step",
        **costs(lost, confidence="medium"),
        effort="hours",
        where=heaviest(host, reads(rows))[0][0],
        confirm="phase_forward_s falls; on a GPU each such value is a wait for the device too",
    )


def _waiting(evidence: Evidence) -> Finding | None:
    """On a device: by line from the audit, by owner from the settings, by cost from a trace."""
    summary = evidence.summary
    rows, owners = _returning_rows(evidence), _owners(summary)
    lost, sites = _idle(evidence)
    if not rows and not owners and (lost or 0.0) < LIMITS.worth:
        return None
    lines = [f"{row.line}: {_named(row)}, {plural(row.calls, 'time')} per step" for row in rows[:3]]
    host_bound = (summary.value(HOST_BOUND_FRACTION) or 0.0) >= LIMITS.host_bound
    if summary.run.world_size > 1 and summary.run.loop is LIGHTNING:
        sites.append("Lightning reads a broadcast flag before every fetch: not yours")
    if summary.run.config.get("logging_nan_inf_filter") is True:
        sites.append("logging_nan_inf_filter=True reads the loss in every micro-batch: not yours")
    return Finding(
        id="hidden_syncs",
        title=_title(lost, rows),
        advice="Read values later",
        evidence=(*lines, *owners, *sites)[:6],
        action=_action(rows, summary),
        fraction=lost,
        gain_upper_bound=amdahl(lost) if lost is not None else None,
        confidence="medium",
        severity=severity(lost) if lost else ("medium" if host_bound else "low"),
        where=(rows[0].line or "") if rows else "",
        confirm="torch.cuda.set_sync_debug_mode('warn') says nothing in the step; then "
        "trainperf compare BEFORE AFTER",
    )


def _returning_rows(evidence: Evidence) -> list[OperatorUse]:
    """Audited operators that hand a value or a copy to the host, the most frequent first."""
    audit = evidence.documents.audit
    rows = audit.operators if audit is not None else ()
    values = [row for row in reads(rows) if row.place != "host"]
    # The batch is copied elsewhere: a copy over the link in forward may go to the host.
    copies = [
        row
        for row in rows
        if row.place == "link"
        and row.line
        and ((row.part == "forward" and "_to_copy" in row.name) or row.name.startswith(READS))
    ]
    return sorted([*values, *copies], key=lambda row: -row.calls)


def _named(row: OperatorUse) -> str:
    copies = row.place == "link" and "_to_copy" in row.name
    return "a copy between host and device" if copies else row.short_name


def _title(lost: float | None, rows: Sequence[OperatorUse]) -> str:
    if lost is not None:
        return f"the device idles {share(lost)} of the step while the host waits for a value"
    if rows:
        return f"{plural(sum(row.calls for row in rows), 'read')} per step make the host wait"
    return "the host waits for the device in every step"


def _action(rows: Sequence[OperatorUse], summary: Summary) -> str:
    if rows:
        return summary.run.loop.kept
    if summary.run.config.get("prog_bar_metrics"):
        return "self.log(…, prog_bar=False): a value on the progress bar is read in every batch"
    if _scaler_reads(summary):
        return "an optimizer with fused=True: the scaler then skips on the device"
    return "look at the trace's synchronisation sites, innermost frame first"


def _owners(summary: Summary) -> list[str]:
    """What else waits in every step, by the recorded settings."""
    config = summary.run.config
    shown = config.get("prog_bar_metrics")
    owners = [f"prog_bar=True reads {shown} in every batch"] if shown else []
    if "ThroughputMonitor" in str(config.get("callbacks") or ""):
        owners.append("ThroughputMonitor waits for the device in every batch")
    if _scaler_reads(summary):
        owners.append(f"{config['grad_scaler']} reads a flag at every update: no fused optimizer")
    return owners


def _scaler_reads(summary: Summary) -> bool:
    """Whether a scaler looks for overflows itself: a fused optimizer would, on the device."""
    config = summary.run.config
    return bool(config.get("grad_scaler")) and config.get("optimizer_fused") in (False, None)


def _idle(evidence: Evidence) -> tuple[float | None, list[str]]:
    """The most that waiting costs by the traces, and where the host waited."""
    ranks = [rank for capture in evidence.captures for rank in capture.ranks]
    slacks = [(slack, rank) for rank in ranks if (slack := _slack(rank)) is not None]
    if not slacks:
        return None, []
    lost, rank = max(slacks, key=lambda pair: pair[0])
    sites = [
        f"{site.call}{f' at {site.stack[0]}' if site.stack else ''}: {site.count} times, "
        f"{duration(site.total_s)} in the trace"
        for site in rank.sync_sites[:2]
    ]
    return lost, sites


def _slack(rank: RankTrace) -> float | None:
    """Share of the traced steps in which device and host both waited: the lesser of the two."""
    device = rank.totals.idle_sync_fraction
    waits = [step.sync_s for step in rank.steps if step.sync_s is not None]
    spent_s = sum(step.step_s for step in rank.steps)
    if device is None or not waits or spent_s <= 0:
        return None
    return min(device, sum(waits) / spent_s, 0.99)
