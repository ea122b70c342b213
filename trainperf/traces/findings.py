"""Rules about a trace: what costs its steps time, and what removing it gains at most.

And the answer of a trace in one to three sentences: what the device does with its time.
"""

from collections.abc import Callable, Sequence

import msgspec

from trainperf.core.findings import LIMITS, Finding, costs, ranked
from trainperf.core.formatting.units import count, duration, plural, share
from trainperf.traces.results import Collective, Operator, RankTrace, Straggler, TraceReport


_MATRIX = ("mm", "conv", "linear", "attention", "matmul", "einsum")

AGAIN = "trainperf trace of a new capture: {}"

Rule = Callable[[RankTrace], Finding | None]


def findings(report: TraceReport) -> tuple[Finding, ...]:
    """The findings of all rules, largest gain first; of several ranks the one it costs most."""
    candidates = (*(_worst(rule, report.ranks) for rule in _RULES), _straggler(report))
    return ranked(finding for finding in candidates if finding is not None)


def period_s(rank: RankTrace) -> float:
    """Mean time per step, on the host, or on the device where that is longer.

    A device that lags behind takes longer than the step marks on the host are apart.
    """
    spans = [step.device_span_s for step in rank.steps if step.device_span_s is not None]
    return max(host_step_s(rank), sum(spans) / len(spans) if spans else 0.0)


def host_step_s(rank: RankTrace) -> float:
    """Mean time per step on the host."""
    return sum(step.step_s for step in rank.steps) / len(rank.steps) if rank.steps else 0.0


def _worst(rule: Rule, ranks: Sequence[RankTrace]) -> Finding | None:
    """The finding of the rank that loses most, with its number where there are several."""
    costs = [(finding, rank) for rank in ranks if (finding := rule(rank)) is not None]
    if not costs:
        return None
    finding, rank = max(costs, key=lambda pair: pair[0].fraction or 0.0)
    if len(ranks) == 1 or rank.rank is None:
        return finding
    first, *others = finding.evidence
    evidence = (f"rank {rank.rank}: {first}", *others)
    return msgspec.structs.replace(finding, evidence=evidence)


def _short(name: str) -> str:
    return name if len(name) <= 80 else name[:79] + "…"  # those of templates fill pages


def _is_worth(cost_s: float, whole_s: float) -> bool:
    return cost_s > 0 and cost_s >= LIMITS.worth * whole_s


def _data_wait(rank: RankTrace) -> Finding | None:
    totals, whole_s = rank.totals, period_s(rank)
    waited_s = totals.data_wait_s or 0.0
    lost_s = totals.data_wait_exposed_s if rank.device_worked else waited_s
    if lost_s is None or not _is_worth(lost_s, whole_s):
        return None
    idle = f", {duration(lost_s)} of it with the GPU idle" if rank.device_worked else ""
    waiter = "with the GPU idle, " if rank.device_worked else ""
    lost = lost_s / whole_s
    return Finding(
        id="data_wait",
        title=f"{share(lost)} of the step is spent {waiter}waiting for data",
        advice="Speed up the loader",
        evidence=(f"the loop waits {duration(waited_s)} per step in the DataLoader{idle}",),
        action="more workers (num_workers, persistent_workers=True, prefetch_factor), or less work "
        "per batch",
        **costs(lost),
        confirm=AGAIN.format("the data wait falls"),
    )


def _host_bound(rank: RankTrace) -> Finding | None:
    fraction = rank.totals.idle_host_bound_fraction or 0.0
    if fraction < 2 * LIMITS.worth:
        return None
    kernels = rank.totals.kernels or 0.0
    short = sum(step.short_kernels or 0 for step in rank.steps)
    of_all = short / (kernels * len(rank.steps)) if kernels else 0.0
    few = f"; {share(of_all)} of its kernels take less than 10 µs" if of_all >= 0.5 else ""
    launches = f"a step launches {count(round(kernels))} kernels, and its operators"
    busy = duration(rank.totals.cpu_op_s or 0.0)
    return Finding(
        id="host_bound",
        title=f"the GPU is idle {share(fraction)} of the time because launches come too late",
        advice="Launch fewer, larger kernels",
        evidence=(f"{launches} keep the host busy for {busy}{few}",),
        action="torch.compile, a fused or foreach optimizer, CUDA graphs, or a larger batch",
        **costs(fraction),
        effort="hours",
        confirm=AGAIN.format("GPU idle, host-bound falls"),
    )


def _communication(rank: RankTrace) -> Finding | None:
    totals, whole_s = rank.totals, period_s(rank)
    exposed_s, total_s = totals.comm_exposed_s or 0.0, totals.comm_s or 0.0
    if not _is_worth(exposed_s, whole_s):
        return None
    tail_s = totals.allreduce_tail_s or 0.0
    after = f"; {duration(tail_s)} of it after backward has ended" if tail_s else ""
    lost = exposed_s / whole_s
    return Finding(
        id="exposed_communication",
        title=f"{share(lost)} of the step is exposed communication",
        advice="Overlap or shrink communication",
        evidence=(
            f"no computation hides {duration(exposed_s)} of {duration(total_s)} per step{after}",
        ),
        action=_about_communication(rank.collectives, tail_s / whole_s),
        **costs(lost),
        effort="hours",
        confirm=AGAIN.format("exposed communication falls"),
    )


def _host_communication(rank: RankTrace) -> Finding | None:
    """How much of it is hidden is unknown, and so is what it costs."""
    totals, whole_s = rank.totals, period_s(rank)
    total_s = totals.comm_s or 0.0
    if totals.comm_exposed_s is not None or not _is_worth(total_s, whole_s):
        return None
    return Finding(
        id="host_communication",
        title=f"collectives run on the host during {share(total_s / whole_s)} of the step",
        advice="Check what overlaps the collectives",
        evidence=(f"{duration(total_s)} per step; whether anything overlaps them is unknown",),
        action="look at what the threads do meanwhile; fewer and larger messages (bucket_cap_mb), "
        "or more work per step (gradient accumulation)",
        confidence="low",
        severity="low",
        effort="hours",
        confirm=AGAIN.format("communication falls"),
    )


def _about_communication(collectives: Sequence[Collective], tail: float) -> str:
    small = [collective.kind for collective in collectives if collective.many_small]
    if small:
        return (
            f"larger messages: {small[0]} runs many times per step on little data (bucket_cap_mb, "
            "or gradients that are reduced one by one)"
        )
    if tail >= LIMITS.worth:
        return (
            "a smaller first bucket (bucket_cap_mb), a gradient hook that halves the bytes "
            "(bf16_compress_hook), or more work per step (gradient accumulation)"
        )
    if collectives and collectives[0].kind == "all_to_all":
        return "start the all-to-all before work that does not need it, on a stream of its own"
    return "start communication before work that can overlap it; see its stream"


def _syncs(rank: RankTrace) -> Finding | None:
    fraction = rank.totals.idle_sync_fraction or 0.0
    if fraction < LIMITS.worth or not rank.sync_sites:
        return None
    site = rank.sync_sites[0]
    frame = _short(site.stack[0]) if site.stack else ""
    at = f" at {frame}" if frame else ""
    return Finding(
        id="synchronisation",
        title=f"the GPU is idle {share(fraction)} of the time while the host waits for it",
        advice="Read values later",
        evidence=(f"{_short(site.call)}{at}: {count(site.count)} times, {duration(site.total_s)}",),
        action="no .item(), .cpu() or print of a tensor in the step; read losses later, or "
        "non_blocking=True from pinned memory",
        **costs(fraction),
        where=frame,
        confirm=AGAIN.format("GPU idle, synchronising falls"),
    )


def _transfer(rank: RankTrace) -> Finding | None:
    totals, whole_s = rank.totals, period_s(rank)
    hidden = totals.h2d_overlap_fraction or 0.0
    exposed_s = (totals.h2d_s or 0.0) * (1.0 - hidden)
    if not _is_worth(exposed_s, whole_s):
        return None
    copies = f"{duration(totals.h2d_s or 0.0)} of copies host→device (H2D)"
    lost = exposed_s / whole_s
    return Finding(
        id="transfer",
        title=f"{share(lost)} of the step is copying that no computation hides",
        advice="Overlap the batch transfer",
        evidence=(f"{copies} per step, {share(hidden)} of it while kernels run",),
        action="pin_memory=True with non_blocking=True, and copy the next batch on a stream of "
        "its own",
        **costs(lost),
        confirm=AGAIN.format("the H2D time that nothing hides falls"),
    )


def _kernels(rank: RankTrace) -> Finding | None:
    fraction = rank.totals.compute_fraction or 0.0
    # From three quarters on the kernels themselves are the thing to look at.
    if fraction < 0.75 or not rank.top_operators:
        return None
    top = rank.top_operators[0]
    busy_s = sum(step.gpu_busy_s or 0.0 for step in rank.steps)
    part = (top.self_device_s or 0.0) / busy_s if busy_s else 0.0
    return Finding(
        id="kernels",
        title=f"the GPU computes {share(fraction)} of the time",
        advice="Make the kernels cheaper",
        evidence=(f"{_short(top.name)} takes {share(part)} of its busy time",),
        action=_about_kernels(rank, top),
        severity="low",
        effort="hours",
        confirm=AGAIN.format("the step is shorter and the GPU still busy"),
    )


def _about_kernels(rank: RankTrace, top: Operator) -> str:
    shares = [step.tensor_core_fraction for step in rank.steps]
    measured = [part for part in shares if part is not None]
    by_matrices = any(part in top.name for part in _MATRIX)
    if by_matrices and measured and max(measured) < 0.1:
        return (
            "lower precision: hardly any kernel looks like a tensor-core kernel (bf16, or TF32 for "
            "float32)"
        )
    return "the kernels themselves: lower precision, torch.compile, fused attention"


def _straggler(report: TraceReport) -> Finding | None:
    """The rank that the others waited for longest, if that cost enough."""
    whole_s = max((period_s(rank) for rank in report.ranks), default=0.0)
    waits: dict[int, list[Straggler]] = {}
    for wait in report.stragglers:
        waits.setdefault(wait.rank, []).append(wait)
    if not waits:
        return None
    steps = len({wait.step for wait in report.stragglers})
    rank, late = max(waits.items(), key=lambda item: (_sum_s(item[1]), -item[0]))
    cost_s = _sum_s(late) / steps
    if not _is_worth(cost_s, whole_s):
        return None
    others = sorted(waits.keys() - {rank})
    also = f"; also late: {', '.join(map(str, others))}" if others else ""
    longest = f"{duration(max(wait.wait_s for wait in late))} in the {late[0].point}"
    lost = cost_s / whole_s
    return Finding(
        id="straggler",
        title=f"the other ranks wait for rank {rank}",
        advice=f"Look at rank {rank}",
        evidence=(f"up to {longest} collectives, late in {len(late)} of {steps} steps{also}",),
        action=f"find what rank {rank} does before them that the others do not: its data, its "
        "host, its device's clock",
        **costs(lost),
        effort="hours",
        confirm=AGAIN.format("the wait for the last rank falls"),
    )


def _sum_s(waits: Sequence[Straggler]) -> float:
    return sum(wait.wait_s for wait in waits)


_RULES: tuple[Rule, ...] = (
    _data_wait,
    _host_bound,
    _communication,
    _host_communication,
    _syncs,
    _transfer,
    _kernels,
)


_CAUSES = (
    ("idle_data_wait_fraction", "because it waits for the DataLoader"),
    ("idle_host_bound_fraction", "because the host launches too late"),
    ("idle_sync_fraction", "while the host waits in synchronising calls"),
    ("idle_other_fraction", "between kernels that had been launched"),
)
IDLE = 0.1
"""Share of idle time from which on its cause is the answer."""


def answer(report: TraceReport) -> str:
    """What the device does with its time, and what is lost; of several ranks their mean."""
    if not report.ranks or not any(rank.steps for rank in report.ranks):
        return "No step was recorded."
    worked = [rank for rank in report.ranks if rank.totals.gpu_busy_fraction is not None]
    sentences = _of_device(worked) if worked else [_of_host(report.ranks)]
    return " ".join([*sentences, *_late(report)])


def _of_device(ranks: Sequence[RankTrace]) -> list[str]:
    busy = _mean([rank.totals.gpu_busy_fraction for rank in ranks])
    who = "The GPU is" if len(ranks) == 1 else f"On average over {len(ranks)} ranks the GPU is"
    sentences = [f"{who} {_doing(ranks, busy)}."]
    whole_s = _mean([period_s(rank) for rank in ranks])
    lost = []
    exposed_s = _mean([rank.totals.comm_exposed_s for rank in ranks])
    if exposed_s > 0 and exposed_s >= LIMITS.worth * whole_s:
        lost.append(
            f"spends {duration(exposed_s)} ({share(exposed_s / whole_s)}) in exposed communication"
        )
    waited_s = _mean([rank.totals.data_wait_s for rank in ranks])
    lost_s = _mean([rank.totals.data_wait_exposed_s for rank in ranks])
    if lost_s > 0 and lost_s >= LIMITS.worth * whole_s:
        lost.append(
            f"waits {duration(waited_s)} for data, {duration(lost_s)} of it with the GPU idle"
        )
    if lost:
        step = f"A step of {duration(whole_s)}{_where(ranks, whole_s)}"
        sentences.append(f"{step} {' and '.join(lost)}.")
    return sentences


def _where(ranks: Sequence[RankTrace], whole_s: float) -> str:
    """Said where a step takes longer on the device than its marks on the host are apart."""
    host_s = _mean([host_step_s(rank) for rank in ranks])
    return " on the device" if whole_s > (1 + LIMITS.worth) * host_s else ""


def _doing(ranks: Sequence[RankTrace], busy: float) -> str:
    if 1.0 - busy < IDLE:
        computing = _mean([rank.totals.compute_fraction for rank in ranks])
        return f"busy {share(busy)} of its recorded span, {share(computing)} computing"
    causes = [(_mean([getattr(rank.totals, name) for rank in ranks]), why) for name, why in _CAUSES]
    parts = [
        f"{share(part)} {why}" for part, why in sorted(causes, reverse=True) if part >= LIMITS.worth
    ]
    return f"idle {share(1.0 - busy)} of its recorded span, {' and '.join(parts[:2])}"


def _of_host(ranks: Sequence[RankTrace]) -> str:
    """Without a device the host is what there is: its largest known part."""
    whole_s = _mean([period_s(rank) for rank in ranks])
    parts = [
        (_mean([rank.totals.data_wait_s for rank in ranks]), "waiting for data"),
        (_mean([rank.totals.comm_s for rank in ranks]), "in collectives on the host"),
        (_mean([rank.totals.cpu_op_s for rank in ranks]), "in operators"),
    ]
    least_s = LIMITS.worth * whole_s
    # A step that ended as it began spends nothing anywhere.
    worth = [part for part in sorted(parts, reverse=True) if part[0] >= least_s > 0]
    doing = ", ".join(f"{duration(part)} ({share(part / whole_s)}) {what}" for part, what in worth)
    spends = f" spends {doing}" if doing else " is mostly outside of operators"
    return f"No device in this trace: a step of {duration(whole_s)} on the host{spends}."


def _late(report: TraceReport) -> list[str]:
    finding = next((each for each in report.findings if each.id == "straggler"), None)
    if finding is None:
        return []
    late = sorted({each.rank for each in report.stragglers})
    worst_s = max(each.wait_s for each in report.stragglers)
    if len(late) == 1:
        who = f"rank {late[0]}"
    else:
        who = f"ranks {', '.join(map(str, late[:-1]))} and {late[-1]}"
        if len(late) > len(report.ranks) // 2:
            who = f"one of {plural(len(late), 'rank')}"
    return [f"Other ranks wait up to {duration(worst_s)} per step for {who}."]


def _mean(values: Sequence[float | None]) -> float:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else 0.0
