"""Rule about fragmented device memory."""

from trainperf.analysis.rules.base import Evidence, setting
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import share, size
from trainperf.core.readings import FRAGMENTATION_BYTES, MEMORY_RESERVED_PEAK_BYTES


def fragmentation(evidence: Evidence) -> Finding | None:
    """The allocator holds much more than tensors ever did, and nearly all that there is.

    Below that the holes do no harm.  An upper bound: the two peaks need not fall together.

    Wrong where: the two peaks fell at different moments.
    To confirm: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, and the reading
    `fragmentation_bytes` then.
    """
    summary = evidence.summary
    holes = summary.value(FRAGMENTATION_BYTES)
    reserved = summary.value(MEMORY_RESERVED_PEAK_BYTES)
    capacity = setting(summary, "device_memory_bytes")
    if holes is None or not reserved or not capacity:
        return None
    if holes < 0.20 * reserved or reserved < 0.80 * capacity:
        return None
    return Finding(
        id="fragmentation",
        title=f"{share(holes / reserved)} of the reserved memory is fragmented",
        advice="Let segments grow",
        evidence=(f"{size(reserved)} of {size(capacity)} reserved, {size(holes)} of it unused",),
        action="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment, and batches "
        "of equal shape",
        confidence="medium",
        severity="medium",
        confirm="fragmentation_bytes is lower in the next run",
    )
