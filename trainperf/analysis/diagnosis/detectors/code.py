"""Detectors of code in the step: metrics, values read back, Python between operators."""

import re
from collections.abc import Sequence
from statistics import fmean

from trainperf.analysis.diagnosis.account import (
    WORK,
    Claim,
    Region,
    StepAccount,
    of_regions,
    total_s,
)
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.detectors.lines import (
    LOOP,
    READS,
    calls_of,
    is_near,
    is_read,
    lines_of,
    place_of,
)
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.summary.schema import PlainCode
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.artifacts.lines import SENDS_BUFFERS
from trainperf.core.choice import first_that_holds
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, plural, share
from trainperf.traces.results import RankTrace


DECIDES = frozenset(
    {"argmax", "argmin", "topk", "sort", "argsort", "bincount", "histc", "_unique2", "unique_dim"}
    | {"unique_consecutive", "searchsorted", "bucketize", "kthvalue", "median", "mode"}
    | {"eq", "ne", "gt", "ge", "lt", "le", "count_nonzero"}
)
"""Operators that turn scores into decisions or counts: what metrics are made of."""

METRICS = frozenset({"torchmetrics", "torcheval"})
"""Packages of metrics: what they compute without a gradient is for reading only."""


@worth(LIMITS.notable)
def metrics_every_batch(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001
    """A metric is computed from every batch: work that nothing is learned from.

    What a package of metrics computes without a gradient, and what is counted or compared after the
    loss, in lines without a matrix product that no gradient flows through.  Whether the result of
    work before the loss goes into it no audit tells: targets, matches and masks are made there, of
    the same operators, so nothing is said of that.  Metrics in hooks after the batch belong to
    `callbacks`.

    Wrong where: what is counted after the loss is for the next step, e.g. to balance experts.
    To confirm: `trainperf prove` with the metric every n-th batch.
    """
    rows = _metrics(account)
    where, called_at = place_of(rows)
    return Cause(
        id="metrics_every_batch",
        title=f"a metric in every batch takes {share(account.share(total_s(rows)))} of the step",
        evidence=(
            (
                f"{plural(calls_of(rows), 'operator')} that no gradient flows through and no loss "
                "needs"
            ),
            *lines_of(rows),
        ),
        changes=(
            Use(change="rarer_metric", values={"at": f" ({called_at})" if called_at else ""}),
        ),
        claim=of_regions(rows),
        where=where,
        called_at=called_at,
        confidence="medium",
    )


def _metrics(account: StepAccount) -> list[Region]:
    """Forward work without a gradient that is surely for reading only."""
    learned = {r.use.line for r in account.regions if r.use.part in ("backward", "recompute")}
    forward = [r for r in account.regions if r.use.part == "forward" and r.use.line]
    products = {region.use.line for region in forward if region.use.matmul_flops}
    # The loss takes its tensors last; what scales it afterwards, e.g. a framework, takes numbers.
    loss = [r for r in forward if r.use.line in learned and any(map(len, r.use.shapes))]
    free = [r for r in forward if r.use.line not in learned | products]
    later = forward[forward.index(loss[-1]) :] if loss else []
    after = [r for r in later if r.use.line not in learned | products]
    deciding = {r.use.line or "" for r in after if r.use.short_name in DECIDES}
    return [
        region
        for region in free
        if METRICS.intersection((region.use.line or "").split("/"))
        or (region in after and any(is_near(region.use.line or "", line) for line in deciding))
    ]


def hidden_syncs(account: StepAccount, facts: Facts) -> Cause | None:
    """Lines of the step read values back, and settings do so in every batch.

    Where the host itself computes, and nobody waits for a device, it is the time of Python loops
    over values, from an audit. On a device: the lines of the audit that read values back, the
    settings that do so in every batch, and from a trace the time in which host and device both
    wait, which is what is removed.

    Wrong where: the value decides the next operation, so that somebody has to wait for it.
    To confirm: `trainperf.smoke.assert_no_sync(step, batch)`; idle time while synchronising in a
    trace.
    """
    return (
        _value_loop(account, facts) if account.device is None else _waits_for_values(account, facts)
    )


@worth(LIMITS.notable)
def _value_loop(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 an audit's rows
    """Python decides value by value what one operator could do for all."""
    rows = read_in_loops(account.regions)
    reading = [region for region in rows if is_read(region.use)]
    where, called_at = place_of(reading)
    return Cause(
        id="hidden_syncs",
        title=f"a Python loop over tensor values takes {share(account.share(total_s(rows)))} of "
        f"the step",
        evidence=(
            (
                f"{plural(calls_of(reading), 'value')} read one by one per step (.item(), float(), "
                "print or an if on a tensor)"
            ),
            *lines_of(rows),
        ),
        changes=(Use(change="tensor_operations", values={"where": where}),),
        claim=of_regions(rows),
        where=where,
        called_at=called_at,
        confidence="medium",
    )


def read_in_loops(regions: Sequence[Region]) -> list[Region]:
    """All that runs about as often as a read that is repeated, in lines near it."""
    # Of the operators of a line the last one counts, which is called most.
    uses = sorted((region.use for region in regions), key=lambda use: use.calls)
    often = {use.line: use.calls for use in uses if use.part == "forward" and use.line}
    repeated = {
        use.line: use.calls for use in filter(is_read, uses) if use.calls >= LOOP and use.line
    }
    chosen = {
        place
        for line, calls in repeated.items()
        for place in often
        if is_near(place, line) and 2 * often[place] >= calls
    }
    return [r for r in regions if r.use.line in chosen and r.use.part != "optimizer"]


def _waits_for_values(account: StepAccount, facts: Facts) -> Cause | None:
    """On a device: by line from the audit, by cost from a trace, and then by setting."""
    rows, trace = _read_from_device(facts), facts.traces[-1] if facts.traces else None
    sites = () if trace is None else trace.sync_sites[:2]
    lost_s = _both_wait_s(account, trace)
    if not rows and account.share(lost_s) < LIMITS.worth:
        return None
    settings = _reading_settings(facts) if lost_s else {}
    return Cause(
        id="hidden_syncs",
        title=f"the device idles {share(account.share(lost_s))} of the step while the host waits "
        "for a value"
        if lost_s
        else f"{plural(sum(use.calls for use in rows), 'read')} per step make the host wait",
        evidence=(
            *(f"{r.line}: {r.short_name}, {plural(r.calls, 'time')} per step" for r in rows[:3]),
            *settings.values(),
            *(
                f"{site.call}{''.join(f' at {frame}' for frame in site.stack[:1])}: {site.count} "
                f"times, {duration(site.total_s)} in the trace"
                for site in sites
            ),
        )[:6],
        changes=tuple(
            Use(change=change)
            for change in (*(() if settings and not rows else ("read_later",)), *settings)
        ),
        claim=Claim(removes_s=lost_s, device={"value_s": lost_s}) if lost_s else None,
        where=(rows[0].line or "") if rows else "".join(f for s in sites[:1] for f in s.stack[:1]),
        called_at=(rows[0].called_at or "") if rows else "",
        confidence="medium",
        severity=None if lost_s else ("medium" if account.host_decides else "low"),
    )


def _read_from_device(facts: Facts) -> list[OperatorUse]:
    """Operators of the audit that hand a value to the host, the most frequent first."""
    copies = (
        use
        for use in facts.uses
        if use.place == "link"
        and use.line
        and ((use.part == "forward" and "_to_copy" in use.name) or use.name.startswith(READS))
    )
    rows = (use for use in facts.uses if is_read(use) and use.place != "host")
    return sorted(dict.fromkeys((*rows, *copies)), key=lambda use: -use.calls)


def _both_wait_s(account: StepAccount, trace: RankTrace | None) -> float:
    """The lesser of the device's idle time and the host's waits, which are longer."""
    idle_s = 0.0 if account.device is None else account.device.value_s or 0.0
    steps = () if trace is None else trace.steps
    waits = [step.sync_s for step in steps if step.sync_s is not None]
    return min(idle_s, fmean(waits)) if waits else idle_s


def _reading_settings(facts: Facts) -> dict[str, str]:
    """Settings that have a value read in every step: the change that switches each off, and why."""
    settings = facts.settings
    shown, scaler = settings.get("prog_bar_metrics"), settings.get("grad_scaler")
    reasons = {
        "quiet_progress_bar": shown and f"prog_bar=True reads {shown} in every batch",
        "no_throughput_monitor": "ThroughputMonitor" in str(settings.get("callbacks"))
        and "ThroughputMonitor waits for the device in every batch",
        "fused_for_scaler": scaler
        and not settings.get("optimizer_fused")
        and f"{scaler} reads a flag at every update: no fused optimizer",
        "no_nan_filter": settings.get("logging_nan_inf_filter") is True
        and "logging_nan_inf_filter=True reads the loss in every micro-batch",
    }
    return {change: str(why) for change, why in reasons.items() if why}


def python_in_step(account: StepAccount, facts: Facts) -> Cause | None:
    """Python, a sleep, files or numpy take much of the step while no operator runs.

    By samples of many steps, which name the function and never mean a line that may be running an
    operator; else by the audited step, where much time passes before an operator that is called a
    few times.  Python around many small operators is not meant: that is what launching them takes.
    Beside a device it matters only where the device waits for the host.

    Wrong where: the function runs once in many steps, and the samples are few: see their number.
    To confirm: time the function by itself; `trainperf prove` without the call.
    """
    return _sampled_python(account, facts) or _audited_python(account, facts)


def _sampled_python(account: StepAccount, facts: Facts) -> Cause | None:
    coded = [
        (slot, code)
        for slot in (*WORK, "other", "between")
        if (code := facts.summary.lines_in(slot).host) and SENDS_BUFFERS not in code.names[:1]
    ]
    if not coded or not account.host_decides:
        return None
    slot, code = max(coded, key=lambda pair: account.spent(pair[0]) * pair[1].line.fraction)
    claim = of_plain_code(account, slot, code)
    if account.share(account.spent(slot) * code.low) < LIMITS.notable:
        return None
    low, high = (share(account.share(account.spent(slot) * part)) for part in (code.low, code.high))
    change = first_that_holds(
        # Tensors made of lists, value by value.
        ("one_array", code.names[0].rpartition(".")[2] in ("tensor", "as_tensor")),
        ("write_rarely", _WRITES.fullmatch(code.names[0])),
        ("python_out_of_step", True),
    )
    return Cause(
        id="python_in_step",
        title=f"{code.line.subject} in {slot if slot in WORK else 'the loop'} takes "
        f"{share(account.share(claim.removes_s))} of the step without a tensor operation",
        evidence=(
            f"{code.line.name}: {low} to {high} of the step (95 % CI, {code.line.samples} samples)",
            f"running there: {', '.join(code.names)}",
        ),
        changes=(Use(change=change, values={"name": code.line.subject}),),
        claim=claim,
        where=code.line.where,
        confidence="high" if account.device is None else "medium",
    )


def of_plain_code(account: StepAccount, slot: str, code: PlainCode) -> Claim:
    """What a function runs in a slot that is no tensor operation, by samples.

    Where the slot's operators have no time beside it, the audited step had the same seconds before
    an operator of another line: their share of all of them is claimed as well.
    """
    near = tuple(r for r in account.regions if is_near(r.use.line or "", code.line.where))
    lost_s = account.spent(slot) * code.line.fraction
    rows = [region for region in account.regions if region.slot == slot]
    rows_s = sum(region.run_s if region in near else region.seconds for region in rows)
    left_s = account.spent(slot) - lost_s
    return Claim(
        owns_s={slot: lost_s},
        removes_s=lost_s,
        at_most_s=account.spent(slot) * code.high,
        before=near,
        shrinks=max(0.0, 1.0 - left_s / rows_s) if rows_s else 0.0,
    )


_WRITES = re.compile(r"(.*\.)?(print|dumps?|write\w*|savetxt|to_csv|flush|fsync)|logging(\..*)?")
"""Names of functions that write."""


@worth(LIMITS.notable)
def _audited_python(account: StepAccount, facts: Facts) -> Cause | None:
    mine = [
        region
        for region in account.regions
        if region.use.line
        and region.use.part == "forward"
        and region.use.calls < LOOP
        # Autograd begins with it, after whatever lies between forward and backward.
        and not region.use.name.startswith("aten.ones_like")
    ]
    region = max(mine, key=lambda each: each.python_s, default=None)
    if region is None:
        return None
    # One audited step may have been interrupted there: the steady ones must lack that time, too,
    # and samples of many steps must have seen it.
    spent_s, sampled = account.spent(region.slot), facts.summary.lines_in(region.slot)
    ran_s = sum(use.host_s for use in facts.uses if use.part == "forward")
    lost_s = min(region.python_s, max(0.0, spent_s - ran_s))
    if sampled.samples:
        near = (line for line in sampled.lines if is_near(line.where, region.use.line or ""))
        lost_s = min(lost_s, spent_s * sum(line.fraction for line in near))
    return Cause(
        id="python_in_step",
        title=f"Python in forward takes {share(account.share(lost_s))} of the step while no "
        f"operator runs",
        evidence=(
            f"{duration(lost_s)} per step pass before {region.use.short_name} at {region.use.line}",
            "no torch operator runs there: print, numpy, files, waiting",
        ),
        changes=(Use(change="python_out_of_step", values={"name": region.use.line}),),
        claim=Claim(owns_s={region.slot: lost_s}, removes_s=lost_s, before=(region,)),
        where=region.use.line or "",
        called_at=region.use.called_at or "",
        confidence="medium",
    )
