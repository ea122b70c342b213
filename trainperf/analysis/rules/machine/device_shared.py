"""Rule about other processes on the device that trains."""

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.machine.base import (
    costly,
    lasting,
    lost,
    place,
    slower_steps,
    stretches,
)
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import share


def device_shared(evidence: Evidence) -> Finding | None:
    """Another process computes on the device, and steps take longer meanwhile, or nobody knows.

    The bound is what steps take longer while it does than without it.  One that only holds memory
    there is no finding.

    Wrong where: the other process works for this training, e.g. one that evaluates its checkpoints.
    To confirm: `nvidia-smi pmon` while it trains; the same training with the device to itself.
    """
    facts = costly(evidence, "device shared") or lasting(evidence, "device shared")
    if facts is None:
        return None
    who = ", ".join(facts.who) or "another process"
    others = max(1, round(facts.values.get("others", 1.0)))
    number = f"{others} other processes" if others > 1 else "1 other process"
    took = facts.values.get("others_busy")
    used = (f"{share(took)} of its multiprocessors' time",) if took is not None else ()
    where = place(facts, evidence)
    which = slower_steps(facts) if facts.slower is not None else ""
    shared = f"{who} used the GPU{where} too"
    return Finding(
        id="device_shared",
        title=f"{which}: {shared}" if which else f"{shared}, {share(facts.fraction)} of the time",
        advice="Train on a GPU of its own",
        evidence=(
            f"{number} on it",
            *used,
            *stretches(facts),
        ),
        action="end the other process, or start one of the two on another device "
        "(CUDA_VISIBLE_DEVICES); nvidia-smi lists who is there",
        confirm="trainperf report: no other process on the GPU while it trains",
        **lost(facts),
    )
