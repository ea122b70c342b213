"""What should be looked at first?  Rules over a trace's figures, with the most each can gain."""

from collections.abc import Callable, Sequence

from trainperf.core.formatting.units import count, duration, share
from trainperf.traces.results import (
    Collective,
    Operator,
    RankTrace,
    Straggler,
    TraceFinding,
    TraceReport,
)


WORTH = 0.05
"""Share of a step from which on something is worth a change."""

BUSY = 0.75
"""Share of time computing from which on the kernels themselves are the thing to look at."""

SHORT = 0.5
"""Share of a step's kernels below 10 µs from which on they are said to be short."""

ITEMS = 1.0
FEW_TENSOR_CORES = 0.1
_MATRIX = ("mm", "conv", "linear", "attention", "matmul", "einsum")

NAME = 80
"""Letters of a name in a sentence."""

Rule = Callable[[RankTrace], TraceFinding | None]


def findings(report: TraceReport) -> tuple[TraceFinding, ...]:
    """The findings of all rules, largest gain first; of several ranks the one it costs most."""
    found = [_worst(rule, report.ranks) for rule in _RULES]
    found.append(_straggler(report))
    kept = [finding for finding in found if finding is not None]
    return tuple(sorted(kept, key=lambda finding: -(finding.gain_at_most or 0.0)))


def period_s(rank: RankTrace) -> float:
    """What a step takes: on the host, or on the device where that is longer.

    Seconds, the mean over the steps.  A device that lags behind takes more than the marks say.
    """
    spans = [step.device_span_s for step in rank.steps if step.device_span_s is not None]
    return max(host_step_s(rank), sum(spans) / len(spans) if spans else 0.0)


def host_step_s(rank: RankTrace) -> float:
    """What a step takes on the host: the mean over the steps, in seconds."""
    return sum(step.step_s for step in rank.steps) / len(rank.steps) if rank.steps else 0.0


def _worst(rule: Rule, ranks: Sequence[RankTrace]) -> TraceFinding | None:
    found = [(rule(rank), rank) for rank in ranks]
    costs = [(finding, rank) for finding, rank in found if finding is not None]
    if not costs:
        return None
    finding, rank = max(costs, key=lambda pair: pair[0].gain_at_most or 0.0)
    if len(ranks) == 1 or rank.rank is None:
        return finding
    evidence = f"rank {rank.rank}: {finding.evidence}"
    return TraceFinding(
        rule=finding.rule,
        what=finding.what,
        evidence=evidence,
        gain_at_most=finding.gain_at_most,
        action=finding.action,
    )


def _short(name: str) -> str:
    """Names of templates are pages long, and a hostile one may be longer."""
    return name if len(name) <= NAME else name[: NAME - 1] + "…"


def _is_worth(cost_s: float, whole_s: float) -> bool:
    return cost_s > 0 and cost_s >= WORTH * whole_s


def _gain(cost_s: float, whole_s: float) -> float | None:
    """Amdahl's law: how many times faster a step is without *cost_s*."""
    return whole_s / (whole_s - cost_s) if 0 < cost_s < whole_s else None


def _data_wait(rank: RankTrace) -> TraceFinding | None:
    totals, whole_s = rank.totals, period_s(rank)
    waited_s = totals.data_wait_s or 0.0
    lost_s = totals.data_wait_exposed_s if rank.device_worked else waited_s
    if lost_s is None or not _is_worth(lost_s, whole_s):
        return None
    idle = f", {duration(lost_s)} of it with the GPU idle" if rank.device_worked else ""
    return TraceFinding(
        rule="data_wait",
        what=f"{share(lost_s / whole_s)} of a step is lost to the DataLoader",
        evidence=f"the loop waits {duration(waited_s)} a step in the loader{idle}",
        gain_at_most=_gain(lost_s, whole_s),
        action="more workers (num_workers, persistent_workers=True, prefetch_factor), or less work "
        "for each batch",
    )


def _host_bound(rank: RankTrace) -> TraceFinding | None:
    fraction = rank.totals.idle_host_bound_fraction or 0.0
    if fraction < 2 * WORTH:
        return None
    kernels = rank.totals.kernels or 0.0
    short = sum(step.short_kernels or 0 for step in rank.steps)
    of_all = short / (kernels * len(rank.steps)) if kernels else 0.0
    few = f"; {share(of_all)} of its kernels take less than 10 µs" if of_all >= SHORT else ""
    return TraceFinding(
        rule="host_bound",
        what=f"the GPU is idle {share(fraction)} of the time because launches come too late",
        evidence=f"a step launches {count(round(kernels))} kernels, while its operators keep the "
        f"host busy for {duration(rank.totals.cpu_op_s or 0.0)}{few}",
        gain_at_most=_gain(fraction, 1.0),
        action="fewer and larger kernels: torch.compile, fused or foreach optimizer, CUDA graphs, "
        "a larger batch",
    )


def _communication(rank: RankTrace) -> TraceFinding | None:
    totals, whole_s = rank.totals, period_s(rank)
    exposed_s, total_s = totals.comm_exposed_s or 0.0, totals.comm_s or 0.0
    if not _is_worth(exposed_s, whole_s):
        return None
    tail_s = totals.allreduce_tail_s or 0.0
    after = f"; {duration(tail_s)} of it after backward has ended" if tail_s else ""
    return TraceFinding(
        rule="exposed_communication",
        what=f"{share(exposed_s / whole_s)} of a step is communication that no computing hides",
        evidence=f"{duration(exposed_s)} of {duration(total_s)} a step{after}",
        gain_at_most=_gain(exposed_s, whole_s),
        action=_about_communication(rank.collectives, tail_s / whole_s),
    )


def _host_communication(rank: RankTrace) -> TraceFinding | None:
    """What of it is hidden is not known, so neither is what it costs."""
    totals, whole_s = rank.totals, period_s(rank)
    total_s = totals.comm_s or 0.0
    if totals.comm_exposed_s is not None or not _is_worth(total_s, whole_s):
        return None
    return TraceFinding(
        rule="host_communication",
        what=f"collectives of the host run during {share(total_s / whole_s)} of a step",
        evidence=f"{duration(total_s)} a step; whether anything runs beside them is not known",
        action="look at what the threads do meanwhile; fewer and larger messages (bucket_cap_mb), "
        "or more work per step (accumulate_grad_batches)",
    )


def _about_communication(collectives: Sequence[Collective], tail: float) -> str:
    small = [one.kind for one in collectives if one.many_small]
    if small:
        return (
            f"larger messages: {small[0]} runs many times a step on little data (bucket_cap_mb, or "
            "gradients that are reduced one by one)"
        )
    if tail >= WORTH:
        return (
            "a smaller first bucket (bucket_cap_mb), a gradient hook that halves the bytes "
            "(bf16_compress_hook), or more work per step (accumulate_grad_batches)"
        )
    if collectives and collectives[0].kind == "all_to_all":
        return "start the all-to-all before work that does not need it, on a stream of its own"
    return "let communication start before the work that it can run beside; see its stream"


def _syncs(rank: RankTrace) -> TraceFinding | None:
    fraction = rank.totals.idle_sync_fraction or 0.0
    if fraction < WORTH or not rank.sync_sites:
        return None
    site = rank.sync_sites[0]
    where = f" at {_short(site.stack[0])}" if site.stack else ""
    return TraceFinding(
        rule="synchronisation",
        what=f"the GPU is idle {share(fraction)} of the time while the host waits for it",
        evidence=f"{_short(site.call)}{where}: {count(site.count)} times, {duration(site.total_s)}",
        gain_at_most=_gain(fraction, 1.0),
        action="no .item(), .cpu() or print of a tensor in the step; read losses later, or "
        "non_blocking=True from pinned memory",
    )


def _transfer(rank: RankTrace) -> TraceFinding | None:
    totals, whole_s = rank.totals, period_s(rank)
    hidden = totals.h2d_overlap_fraction or 0.0
    exposed_s = (totals.h2d_s or 0.0) * (1.0 - hidden)
    if not _is_worth(exposed_s, whole_s):
        return None
    return TraceFinding(
        rule="transfer",
        what=f"{share(exposed_s / whole_s)} of a step is copying that no computing hides",
        evidence=f"{duration(totals.h2d_s or 0.0)} of host-to-device copies a step, "
        f"{share(hidden)} of it while kernels run",
        gain_at_most=_gain(exposed_s, whole_s),
        action="pin_memory=True with non_blocking=True, and copy the next batch on a stream of "
        "its own",
    )


def _kernels(rank: RankTrace) -> TraceFinding | None:
    fraction = rank.totals.compute_fraction or 0.0
    if fraction < BUSY or not rank.top_operators:
        return None
    top = rank.top_operators[0]
    busy_s = sum(step.gpu_busy_s or 0.0 for step in rank.steps)
    part = (top.self_device_s or 0.0) / busy_s if busy_s else 0.0
    return TraceFinding(
        rule="kernels",
        what=f"the GPU computes {share(fraction)} of the time",
        evidence=f"{_short(top.name)} takes {share(part)} of its busy time",
        action=_about_kernels(rank, top),
    )


def _about_kernels(rank: RankTrace, top: Operator) -> str:
    shares = [one.tensor_core_fraction for one in rank.steps]
    known = [one for one in shares if one is not None]
    by_matrices = any(part in top.name for part in _MATRIX)
    if by_matrices and known and max(known) < FEW_TENSOR_CORES:
        return "lower precision: hardly a kernel sounds of tensor cores (bf16, or TF32 for float32)"
    return "the kernels themselves: lower precision, torch.compile, fused attention"


def _straggler(report: TraceReport) -> TraceFinding | None:
    """The rank that most steps waited for, if it cost more than it is worth."""
    whole_s = max((period_s(rank) for rank in report.ranks), default=0.0)
    lost: dict[int, list[Straggler]] = {}
    for one in report.stragglers:
        lost.setdefault(one.rank, []).append(one)
    if not lost:
        return None
    steps = len({one.step for one in report.stragglers})
    rank, late = max(lost.items(), key=lambda item: (sum(one.wait_s for one in item[1]), -item[0]))
    cost_s = sum(one.wait_s for one in late) / steps
    if not _is_worth(cost_s, whole_s):
        return None
    others = sorted({one.rank for one in report.stragglers} - {rank})
    beside = f"; late too: {', '.join(map(str, others))}" if others else ""
    return TraceFinding(
        rule="straggler",
        what=f"the other ranks wait for rank {rank}",
        evidence=f"up to {duration(max(one.wait_s for one in late))} in the {late[0].point} "
        f"collectives, late in {len(late)} of {steps} steps{beside}",
        gain_at_most=_gain(cost_s, whole_s),
        action=f"find what rank {rank} does before them that the others do not: its data, its "
        "host, its device's clock",
    )


_RULES: tuple[Rule, ...] = (
    _data_wait,
    _host_bound,
    _communication,
    _host_communication,
    _syncs,
    _transfer,
    _kernels,
)
