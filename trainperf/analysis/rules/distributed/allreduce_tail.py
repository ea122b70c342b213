"""Rule about waiting for gradients to be reduced, stragglers aside."""

from math import ceil

from trainperf.analysis.rules.base import Evidence, TraceTime, setting, steady_step_s
from trainperf.analysis.rules.distributed.base import reduction_fraction, redundant
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding, amdahl, severity
from trainperf.core.formatting.units import duration, plural, rate, share, size
from trainperf.core.loop_kind import HUGGING_FACE


TRACE_TIME: TraceTime = "communication"

BUCKET_MB = 25
"""What DDP takes by itself."""


def allreduce_tail(evidence: Evidence) -> Finding | None:
    """Even the last rank waits for the all-reduce when its backward has nothing left to do.

    What ranks lose to a late one is the straggler's, what redundant reductions take is `no_sync`'s.

    Wrong where: it ends a step that another rank began late: see `straggler` first.
    To confirm: `trainperf try --only no_reduction SCRIPT` is the ceiling; a trace shows the
    collectives.
    """
    summary = evidence.summary
    point = next((p for p in summary.synchronisation if p.point == "backward"), None)
    step_s, most = steady_step_s(summary), reduction_fraction(evidence)
    if point is None or not step_s or most is None:
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
    # The first bucket is a small one, so that reducing can begin early.  Four times are too many.
    return buckets > 4 * (1 + ceil(gradients / (BUCKET_MB << 20)))


def _remedy(summary: Summary) -> tuple[str, str]:
    config = summary.run.config
    loop = summary.run.loop
    if too_many_buckets(summary):
        larger = loop.ddp.format(option=f"bucket_cap_mb={BUCKET_MB}")
        return "Reduce larger buckets", f"{larger} or larger"
    if setting(summary, "ddp_unused_bytes") == 0:
        needless = loop.ddp.format(option="find_unused_parameters=False")
        return "Stop looking for unused parameters", needless
    # A Trainer's arguments have no such option.
    if config.get("ddp_gradient_as_bucket_view") is False and loop is not HUGGING_FACE:
        views = loop.ddp.format(option="gradient_as_bucket_view=True")
        return (
            "Send less, or less often",
            f"{views}, and bf16_compress_hook to send half the bytes",
        )
    return "Send less, or less often", "accumulate more micro-batches under no_sync(), or send bf16"


def _buckets(summary: Summary) -> tuple[str, ...]:
    buckets, gradients = setting(summary, "ddp_buckets"), setting(summary, "gradient_bytes")
    facts = []
    if buckets and gradients is not None:
        each = size(gradients / buckets)
        facts.append(f"{plural(round(buckets), 'bucket')} of {each} on average")
    if setting(summary, "ddp_unused_bytes") == 0:
        facts.append("find_unused_parameters=True, and every parameter is used")
    return tuple(facts)


def _links(evidence: Evidence) -> tuple[str, ...]:
    """What a capture saw of the all-reduces, against the chip's link to its host."""
    slowest = _slowest_bytes_per_s(evidence)
    if slowest is None:
        return ()
    fact = f"all-reduces move {rate(slowest)} over the slowest link"
    link = evidence.light.chip.link_bytes_per_s if evidence.light else None
    return (fact if link is None else f"{fact}; the link to the host does {rate(link)}",)


def _slowest_bytes_per_s(evidence: Evidence) -> float | None:
    for capture in reversed(evidence.captures):
        rates = [
            collective.bus_bytes_per_s
            for rank in capture.ranks
            for collective in rank.collectives
            if collective.kind == "all_reduce" and collective.bus_bytes_per_s
        ]
        if rates:
            return min(rates)
    return None
