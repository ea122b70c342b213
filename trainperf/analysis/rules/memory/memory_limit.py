"""Rule about runs close to the memory limit."""

from trainperf.analysis.roofline.memory_savings import savings
from trainperf.analysis.rules.base import Evidence, setting, worst
from trainperf.analysis.rules.memory.out_of_memory import out_of_memory
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import share, size
from trainperf.core.readings import MEMORY_PEAK_BYTES, RESIDENT_PEAK_BYTES


def memory_limit(evidence: Evidence) -> Finding | None:
    """The peak leaves little room: a longer sequence, or a fragmented cache, ends the fit.

    Judged by what tensors held on an accelerator, and by the resident set on a CPU; what the
    allocator merely reserved it would give back.  Room costs no time, so no gain is promised.

    Wrong where: another process holds a part of the memory, or the longest batch has been there
    already.
    To confirm: `max_memory_allocated` of an epoch; a batch of the longest sequences in
    `trainperf.benchmark`.
    """
    summary, memory = evidence.summary, evidence.documents.memory
    reading = RESIDENT_PEAK_BYTES if summary.run.device == "cpu" else MEMORY_PEAK_BYTES
    used = worst(summary, reading) or summary.value(reading)
    capacity = setting(summary, "device_memory_bytes")
    # TraceML's pressure bands: 0.92 and 0.97.
    if used is None or not capacity or used / capacity < 0.92:
        return None
    if out_of_memory(evidence) is not None:
        return None
    saved = [
        f"{saving.what} saves up to {size(saving.size_bytes)}, and {saving.costs}"
        for saving in (savings(memory) if memory is not None else ())
    ]
    return Finding(
        id="memory_limit",
        title=f"the run uses {share(used / capacity)} of the available memory",
        advice="Leave room in memory",
        evidence=(f"{size(used)} of {size(capacity)} at the peak", *saved[:2]),
        action=f"a smaller micro-batch with {summary.run.loop.accumulation}, or "
        "torch.utils.checkpoint around the blocks",
        severity="high" if used / capacity >= 0.97 else "medium",
        confirm=f"trainperf compare BEFORE AFTER shows a {reading} that is lower",
    )
