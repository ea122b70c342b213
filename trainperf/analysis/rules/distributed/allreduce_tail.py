"""Rule about waiting for gradients to be reduced, stragglers aside."""

from math import ceil

from trainperf.analysis.rules.base import Evidence, TraceTime, setting
from trainperf.analysis.rules.distributed.base import reduction_fraction, redundant
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding, amdahl, severity
from trainperf.core.formatting.units import duration, plural, rate, share, size
from trainperf.core.readings import STEP_MEAN_S
from trainperf.traces.results import Collective


TRACE_TIME: TraceTime = "communication"

MIB = 1024**2

BUCKET_MB = 25
"""What DDP takes by itself."""

MANY_BUCKETS = 4
"""So many times the buckets that a cap of `BUCKET_MB` would make, and one: too many."""


def allreduce_tail(evidence: Evidence) -> Finding | None:
    """Even the last rank waits for the all-reduce when its backward has nothing left to do.

    What ranks lose to a late one is the straggler's, what redundant reductions take is `no_sync`'s.
    """
    summary = evidence.summary
    point = next((p for p in summary.synchronisation if p.point == "backward"), None)
    step_s, most = summary.value(STEP_MEAN_S), reduction_fraction(evidence)
    if point is None or not step_s or most is None or summary.run.steady_steps < LIMITS.steps:
        return None
    waited = point.transfer_s / step_s * (1 - redundant(summary))
    if waited < LIMITS.notable:
        return None
    lost = max(waited, most * (1 - redundant(summary)))
    advice, action = _remedy(summary)
    return Finding(
        id="allreduce_tail",
        title=f"{share(waited)} of the step waits for gradients to be reduced",
        advice=advice,
        evidence=(
            f"{duration(point.transfer_s)} of {duration(step_s)} per step, on every rank",
            *_buckets(summary),
            *_links(evidence),
        ),
        action=action,
        fraction=lost,
        gain_upper_bound=amdahl(lost),
        confidence="medium",
        severity=severity(waited),
        confirm="trainperf compare BEFORE AFTER: allreduce_tail_s falls",
    )


def too_many_buckets(summary: Summary) -> bool:
    """Whether DDP reduces far more buckets than its gradients would fill."""
    buckets, gradients = setting(summary, "ddp_buckets"), setting(summary, "gradient_bytes")
    if buckets is None or gradients is None:
        return False
    # The first bucket is a small one, so that reducing can begin early.
    return buckets > MANY_BUCKETS * (1 + ceil(gradients / (BUCKET_MB * MIB)))


def _remedy(summary: Summary) -> tuple[str, str]:
    config = summary.run.config
    ddp = summary.run.loop.ddp
    if too_many_buckets(summary):
        return "Reduce larger buckets", f"{ddp}(bucket_cap_mb={BUCKET_MB}) or larger"
    if setting(summary, "ddp_unused_bytes") == 0:
        return "Stop looking for unused parameters", f"{ddp}(find_unused_parameters=False)"
    if config.get("ddp_gradient_as_bucket_view") is False:
        return (
            "Send less, or less often",
            f"{ddp}(gradient_as_bucket_view=True), and bf16_compress_hook to send half the bytes",
        )
    return "Send less, or less often", "accumulate more micro-batches under no_sync(), or send bf16"


def _buckets(summary: Summary) -> tuple[str, ...]:
    buckets, gradients = setting(summary, "ddp_buckets"), setting(summary, "gradient_bytes")
    evidence = []
    if buckets and gradients is not None:
        each = size(gradients / buckets)
        evidence.append(f"{plural(round(buckets), 'bucket')} of {each} on average")
    if setting(summary, "ddp_unused_bytes") == 0:
        evidence.append("find_unused_parameters=True, and every parameter is used")
    return tuple(evidence)


def _links(evidence: Evidence) -> tuple[str, ...]:
    """What a capture saw of the all-reduces, against the chip's link to its host."""
    slowest = _slowest(evidence)
    if slowest is None or slowest.bus_bytes_per_s is None:
        return ()
    speed = f"all-reduces move {rate(slowest.bus_bytes_per_s)} over the slowest link"
    link = evidence.light.chip.link_bytes_per_s if evidence.light else None
    return (speed if link is None else f"{speed}; the link to the host does {rate(link)}",)


def _slowest(evidence: Evidence) -> Collective | None:
    for capture in reversed(evidence.captures):
        reductions = [
            collective
            for rank in capture.ranks
            for collective in rank.collectives
            if collective.kind == "all_reduce" and collective.bus_bytes_per_s
        ]
        if reductions:
            return min(reductions, key=lambda collective: collective.bus_bytes_per_s or 0.0)
    return None
