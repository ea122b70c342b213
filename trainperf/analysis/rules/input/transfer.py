"""Rule about copying the batch to the device."""

from trainperf.analysis.rules.base import Evidence, setting
from trainperf.analysis.rules.input.base import moved, small_copies
from trainperf.analysis.summary.machine import link_words
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import count, duration, share, size
from trainperf.core.loop_kind import HUGGING_FACE
from trainperf.core.readings import (
    H2D_BYTES,
    H2D_FRACTION,
    H2D_TENSORS,
    STEP_MEAN_S,
)


def transfer(evidence: Evidence) -> Finding | None:
    """The host-to-device copy takes a notable part of the step.

    What a trace shows to overlap computation is not counted.  A batch of many small tensors has a
    rule of its own.

    Wrong where: the copies overlap computation, which only a trace shows.
    To confirm: `trainperf try --only no_transfer SCRIPT`; `trainperf trace` shows the share that
    overlaps.
    """
    summary = evidence.summary
    lost, step_s = moved(summary), summary.value(STEP_MEAN_S)
    if lost is None or not step_s or small_copies(summary):
        return None
    overlapped = _overlapped(evidence)
    lost *= 1.0 - overlapped
    if lost < LIMITS.notable:
        return None
    facts = [f"{duration(lost * step_s)} of {duration(step_s)} per step", *_evidence(summary)]
    if overlapped:
        facts.append(f"{share(overlapped)} of the copying overlaps computation: not counted")
    return Finding(
        id="transfer",
        title=f"moving the batch to the device takes {share(lost)} of the step",
        advice="Make the batch transfer cheaper",
        evidence=tuple(facts),
        action=_action(summary),
        **costs(lost, confidence="medium" if summary.value(H2D_FRACTION) is None else "high"),
        effort="minutes" if _pageable(summary) else "hours",
        confirm=f"h2d_fraction below {share(LIMITS.notable)}, h2d_bytes_per_s near the link's rate",
    )


def _overlapped(evidence: Evidence) -> float:
    """Share of the copying that overlapped kernels, in the latest trace; 0 where none says so."""
    for capture in reversed(evidence.captures):
        for rank in capture.ranks:
            if rank.totals.h2d_overlap_fraction is not None:
                return rank.totals.h2d_overlap_fraction
    return 0.0


def _evidence(summary: Summary) -> list[str]:
    copied, speed = summary.value(H2D_BYTES), link_words(summary)
    tensors, pinned = summary.value(H2D_TENSORS), setting(summary, "pin_memory")
    facts = []
    if copied is not None:
        facts.append(f"{size(copied)} per step" + (f" at {speed}" if speed else ""))
    if tensors is not None:
        facts.append(f"{count(tensors)} tensors per step")
    if pinned is not None:
        facts.append(f"pin_memory={bool(pinned)}")
    return facts


def _pageable(summary: Summary) -> bool:
    return setting(summary, "pin_memory") == 0


def _action(summary: Summary) -> str:
    loop = summary.run.loop
    if summary.run.device == "cpu":
        return "nothing is copied on a CPU: look at the batch-transfer hooks of the module"
    if _pageable(summary):
        if loop.own:
            return "DataLoader(pin_memory=True), and batch.to(device, non_blocking=True)"
        pinned = loop.data_loader("pin_memory=True")
        if loop is HUGGING_FACE:
            return f'{pinned}, and accelerator_config={{"non_blocking": True}}'
        return f"{pinned}: Lightning then copies without blocking"
    less = "send less: smaller dtypes, or make on the device what can be made there"
    return f"batch.to(device, non_blocking=True); {less}" if loop.own else less
