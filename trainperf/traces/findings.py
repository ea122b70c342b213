"""Rules about a trace: what costs its steps time, and what removing it gains at most."""

from collections.abc import Callable, Sequence

import msgspec

from trainperf.core.findings import LIMITS, Finding, costs, ranked
from trainperf.core.formatting.units import count, duration, share
from trainperf.traces.results import Collective, Operator, RankTrace, Straggler, TraceReport


_MATRIX = ("mm", "conv", "linear", "attention", "matmul", "einsum")

AGAIN = "trainperf trace of a new capture: {}"

Rule = Callable[[RankTrace], Finding | None]


def findings(report: TraceReport) -> tuple[Finding, ...]:
    """The findings of all rules, largest gain first; of several ranks the one it costs most."""
    candidates = (*(_worst(rule, report.ranks) for rule in _RULES), straggler(report))
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


def data_wait(rank: RankTrace) -> Finding | None:
    """Steps wait in the DataLoader for a twentieth of their time or more.

    With a device only the part counts in which it was idle.  The bound is that part.

    Wrong where: the loader's operators are not in the trace, or a step was cut by
    `Optimizer.step` in the middle of a fetch.
    To confirm: the reading `data_stall_fraction`; `trainperf try --only free_loader SCRIPT`.
    """
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
        action="more workers, no more than this rank has CPUs (num_workers, "
        "persistent_workers=True, prefetch_factor), or less work per batch",
        **costs(lost),
        confirm=AGAIN.format("the data wait falls"),
    )


def host_bound(rank: RankTrace) -> Finding | None:
    """The device is idle for a tenth of its time or more because launches come too late.

    Counted are gaps that end with a launch after the device had nothing left to do.  The bound is
    all of them; kernels that are fused gain less.

    Wrong where: the profiler itself makes launching slow: stacks and shapes in the trace cost the
    host time that the training does not spend.
    To confirm: the reading `host_bound_fraction`, which needs no profiler;
    `trainperf try --only compile SCRIPT`.
    """
    fraction = rank.totals.idle_host_bound_fraction or 0.0
    if fraction < 2 * LIMITS.worth:
        return None
    launched = rank.totals.kernels or 0.0
    short = sum(step.short_kernels or 0 for step in rank.steps)
    of_all = short / (launched * len(rank.steps)) if launched else 0.0
    few = f"; {share(of_all)} of its kernels take less than 10 µs" if of_all >= 0.5 else ""
    launches = f"a step launches {count(round(launched))} kernels, and its operators"
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


def exposed_communication(rank: RankTrace) -> Finding | None:
    """Collectives run for a twentieth of the step or more with no compute kernel next to them.

    The wait for the slowest rank is inside the collectives' kernels, and so in this share.

    Wrong where: a rank comes late: its wait is `straggler`'s, and no overlap removes it.
    To confirm: the reading `allreduce_tail_s`; `trainperf try --only no_reduction SCRIPT`.
    """
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


def host_communication(rank: RankTrace) -> Finding | None:
    """Collectives run on the host for a twentieth of the step or more; what hides them is unknown.

    No bound: the threads of the host may compute meanwhile.

    Wrong where: the collectives overlap work that the trace does not record, e.g. of other threads.
    To confirm: the reading `allreduce_tail_s`, and the step on one rank.
    """
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


def synchronisation(rank: RankTrace) -> Finding | None:
    """The device is idle for a twentieth of its time or more while the host waits for it.

    The bound is that idle time: the wait itself is longer, and most of it the device works.

    Wrong where: the value that is read decides what to do next; then the wait can be moved, not
    removed.
    To confirm: `trainperf.smoke.assert_no_sync` on one step; the finding `hidden_syncs`.
    """
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


def transfer(rank: RankTrace) -> Finding | None:
    """Copies host→device take a twentieth of the step or more with no kernel next to them.

    The bound is the time of the copies that nothing hides.

    Wrong where: the copies wait for a batch that is not there yet: `data_wait` is what to mend.
    To confirm: the reading `h2d_s`; `trainperf try --only no_transfer SCRIPT`.
    """
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


def kernels(rank: RankTrace) -> Finding | None:
    """The device computes for three quarters of its time or more: what is left is the kernels.

    No bound: how much cheaper they can get, an audit tells.

    Wrong where: others share the device: their kernels are not in the trace, and slow these down.
    To confirm: an audit (`TrainPerf(audit_at=20)`) sets each operator against its floor.
    """
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


def straggler(report: TraceReport) -> Finding | None:
    """Other ranks wait in collectives for the same rank, a twentieth of the step or more.

    The wait of a rank is what it spends in a collective beyond the rank that spends least.

    Wrong where: the steps of the traces are not the same ones, or so few that chance names a rank.
    To confirm: the run's own finding `straggler`, over all steady steps.
    """
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
    data_wait,
    host_bound,
    exposed_communication,
    host_communication,
    synchronisation,
    transfer,
    kernels,
)

TRACE_RULES: tuple[Callable[..., Finding | None], ...] = (*_RULES, straggler)
"""All of them, each with the name of its finding; the last compares ranks."""
