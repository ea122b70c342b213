"""Rule about a device whose memory is so full that the allocator has to start over."""

from trainperf.analysis.rules.base import Evidence, setting, worst
from trainperf.analysis.rules.memory.out_of_memory import out_of_memory
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import count, plural, size
from trainperf.core.readings import ALLOC_FAILURES, ALLOC_RETRIES, MEMORY_RESERVED_PEAK_BYTES


FEWEST = 3
"""The first few may belong to the last steps of the warm-up."""

EVERY = 1000
"""Steps in which one retry is too few to matter: each costs some tens of milliseconds."""


def alloc_retries(evidence: Evidence) -> Finding | None:
    """The CUDA allocator fails in steady steps, waits for the device and empties its cache.

    What a retry costs is not measured, so no gain is promised: `cudaFree` waits for all that the
    device has been given, and memory has to be asked for anew.

    Wrong where: the retries end once the largest batch has been there: the cache is then large
    enough.
    To confirm: the reading `alloc_retries` of a longer run; `torch.cuda.memory_stats()`.
    """
    summary = evidence.summary
    steps = summary.run.steady_steps
    retries = worst(summary, ALLOC_RETRIES) or summary.value(ALLOC_RETRIES) or 0.0
    if steps < LIMITS.steps or retries < max(FEWEST, steps / EVERY):
        return None
    if out_of_memory(evidence) is not None:
        return None
    held, capacity = (
        summary.value(MEMORY_RESERVED_PEAK_BYTES),
        setting(summary, "device_memory_bytes"),
    )
    full = (f"{size(held)} of {size(capacity)} reserved at the peak",) if held and capacity else ()
    failed = summary.value(ALLOC_FAILURES) or 0.0
    caught = (f"{plural(round(failed), 'allocation')} failed for good and were caught",)
    return Finding(
        id="alloc_retries",
        title=f"the allocator ran out of memory and retried {count(retries)} times in "
        f"{plural(steps, 'steady step')}",
        advice="Make room in memory",
        evidence=(
            f"{retries / steps:.2g} retries per step, each of which waits for the device",
            *full,
            *(caught if failed else ()),
        ),
        action="a smaller micro-batch, batches of equal shape, or where the memory is in holes "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment",
        confidence="high",
        severity="high" if retries >= steps / 10 else "medium",
        confirm="alloc_retries is 0 in the next run",
    )
