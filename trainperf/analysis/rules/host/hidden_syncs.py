"""Does the host wait for the device where nobody meant it to, and at which line?

A value that Python wants to know stops the host until the device has computed it.  On a CPU there
is nobody to wait for: there it matters only where Python loops over such values.
"""

from collections.abc import Sequence

from trainperf.analysis.rules.base import Evidence, TraceTime
from trainperf.analysis.rules.host.base import READS, heaviest, host_lines, read_in_loops, reads
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import LIMITS, Finding, amdahl, costs, severity
from trainperf.core.formatting.units import duration, plural, share
from trainperf.core.loop_kind import LIGHTNING
from trainperf.core.readings import HOST_BOUND_FRACTION
from trainperf.traces.results import RankTrace


TRACE_TIME: TraceTime = "host"

CONFIRM = (
    "torch.cuda.set_sync_debug_mode('warn') says nothing in the step; then "
    "trainperf compare BEFORE AFTER"
)


def hidden_syncs(evidence: Evidence) -> Finding | None:
    """Lines of the step that read values back, with who else does so in every batch."""
    on_cpu = evidence.summary.run.device == "cpu"
    return _looping(evidence) if on_cpu else _waiting(evidence)


def _looping(evidence: Evidence) -> Finding | None:
    """Python decides value by value what one operator could do for all."""
    known = host_lines(evidence)
    rows = read_in_loops(known.rows) if known is not None else []
    if known is None or not rows:
        return None
    lost = known.share(rows)
    if lost < LIMITS.notable:
        return None
    lines = heaviest(known, rows)
    where = heaviest(known, reads(rows))[0][0]
    return Finding(
        id="hidden_syncs",
        title=f"a Python loop over values of tensors takes {share(lost)} of the step",
        advice="Let tensors decide, not Python",
        evidence=(
            (
                f"{plural(sum(row.calls for row in reads(rows)), 'value')} a step read one by one "
                "(.item(), float(), print or an if on a tensor)"
            ),
            *(f"{line}: {duration(part * known.step_s)} a step" for line, part in lines[:2]),
        ),
        action="one operator for all of them instead of the loop, e.g. torch.where(scores > 0, "
        "values, 0).sum(); print every n-th step",
        **costs(lost),
        confidence="medium",
        effort="hours",
        where=where,
        confirm="phase_forward_s falls; on a GPU every such value is a wait for the device too",
    )


def _waiting(evidence: Evidence) -> Finding | None:
    """On a device: by line from the audit, by owner from the settings, by cost from a trace."""
    summary, audit = evidence.summary, evidence.documents.audit
    rows = audit.operators if audit is not None else ()
    mine = [row for row in reads(rows) if row.place != "host"]
    back = [row for row in rows if row.place == "link" and row.line and _returns(row)]
    owners = _owners(summary)
    lost, sites = _idle(evidence)
    if not mine and not back and not owners and (lost or 0.0) < LIMITS.worth:
        return None
    user = sorted([*mine, *back], key=lambda row: -row.calls)
    bound = summary.value(HOST_BOUND_FRACTION) or 0.0
    return Finding(
        id="hidden_syncs",
        title=_title(lost, user),
        advice="Read values later",
        evidence=(
            *(f"{row.line}: {_short(row)}, {plural(row.calls, 'time')} a step" for row in user[:3]),
            *owners,
            *sites,
            *_sigterm(summary),
        )[:6],
        action=_action(user, summary),
        fraction=lost,
        gain_upper_bound=amdahl(lost) if lost is not None else None,
        confidence="medium",
        severity=severity(lost) if lost else ("medium" if bound >= LIMITS.host_bound else "low"),
        where=(user[0].line or "") if user else "",
        confirm=CONFIRM,
    )


def _title(lost: float | None, user: Sequence[OperatorUse]) -> str:
    if lost is not None:
        return f"the device idles {share(lost)} of the step while the host waits for a value"
    if user:
        return f"{plural(sum(row.calls for row in user), 'read')} a step make the host wait"
    return "the host waits for the device in every step"


def _action(user: Sequence[OperatorUse], summary: Summary) -> str:
    if user:
        return "keep it a tensor (loss.detach(), torch.where) and read it every n-th step"
    if summary.run.config.get("prog_bar_metrics"):
        return "self.log(…, prog_bar=False): a value on the progress bar is read in every batch"
    if _scaled(summary):
        return "an optimizer with fused=True: the scaler then skips on the device"
    return "look at the trace's synchronisation sites, innermost frame first"


def _owners(summary: Summary) -> tuple[str, ...]:
    """Who but the user's own lines waits in every step, by what was recorded of the settings."""
    config = summary.run.config
    shown = config.get("prog_bar_metrics")
    said = [f"prog_bar=True reads {shown} in every batch"] if shown else []
    if "ThroughputMonitor" in str(config.get("callbacks") or ""):
        said.append("ThroughputMonitor waits for the device in every batch")
    if _scaled(summary):
        said.append(f"{config['grad_scaler']} reads a flag at every update: no fused optimizer")
    return tuple(said)


def _scaled(summary: Summary) -> bool:
    """A scaler whose optimizer does not look at the overflow itself."""
    config = summary.run.config
    fused = config.get("optimizer_fused")
    return bool(config.get("grad_scaler")) and (fused is False or fused is None)


def _sigterm(summary: Summary) -> tuple[str, ...]:
    several = summary.run.world_size > 1 and summary.run.loop is LIGHTNING
    return ("Lightning reads a broadcast flag before every fetch: not yours",) if several else ()


def _idle(evidence: Evidence) -> tuple[float | None, tuple[str, ...]]:
    """The most that waiting costs by the traces: host's or device's slack, whichever is less."""
    ranks = [rank for capture in evidence.captures for rank in capture.ranks]
    known = [(fraction, rank) for rank in ranks if (fraction := _slack(rank)) is not None]
    if not known:
        return None, ()
    fraction, rank = max(known, key=lambda pair: pair[0])
    said = [
        f"{site.call}{f' at {site.stack[0]}' if site.stack else ''}: {site.count} times, "
        f"{duration(site.total_s)} in the trace"
        for site in rank.sync_sites[:2]
    ]
    return fraction, tuple(said)


def _slack(rank: RankTrace) -> float | None:
    device = rank.totals.idle_sync_fraction
    waits = [step.sync_s for step in rank.steps if step.sync_s is not None]
    spent_s = sum(step.step_s for step in rank.steps)
    if device is None or not waits or spent_s <= 0:
        return None
    return min(device, sum(waits) / spent_s, 0.99)


def _returns(row: OperatorUse) -> bool:
    """Whether a copy over the link may be one to the host: that of a batch is made elsewhere."""
    return (row.part == "forward" and "_to_copy" in row.name) or row.name.startswith(READS)


def _short(row: OperatorUse) -> str:
    if row.place == "link" and "_to_copy" in row.name:
        return "a copy between host and device"
    return row.short_name
