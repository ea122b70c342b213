"""Rule about copying the batch to the device."""

from trainperf.analysis.rules.base import Evidence, setting
from trainperf.analysis.rules.input.base import moved, small_copies
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import count, duration, rate, share, size
from trainperf.core.loop_kind import PLAIN
from trainperf.core.machine.chips import chip_of
from trainperf.core.readings import (
    H2D_BYTES,
    H2D_BYTES_PER_S,
    H2D_FRACTION,
    H2D_TENSORS,
    STEP_MEAN_S,
)


def transfer(evidence: Evidence) -> Finding | None:
    """The host-to-device copy takes a notable part of the step.

    What a trace shows to overlap computation is not counted.  A batch of many small tensors has a
    rule of its own.
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
    copied, speed = summary.value(H2D_BYTES), summary.value(H2D_BYTES_PER_S)
    tensors, pinned = summary.value(H2D_TENSORS), setting(summary, "pin_memory")
    chip = chip_of(str(summary.run.hardware.get("device_name", "")))
    facts = []
    if copied is not None:
        facts.append(f"{size(copied)} per step" + (f" at {rate(speed)}" if speed else ""))
    if speed and chip is not None and chip.link_bytes_per_s:
        facts.append(f"the link of the {chip.name} carries {rate(chip.link_bytes_per_s)}")
    if tensors is not None:
        facts.append(f"{count(tensors)} tensors per step")
    if pinned is not None:
        facts.append(f"pin_memory={bool(pinned)}")
    return facts


def _pageable(summary: Summary) -> bool:
    return setting(summary, "pin_memory") == 0


def _action(summary: Summary) -> str:
    plain = summary.run.loop is PLAIN
    if summary.run.device == "cpu":
        return "nothing is copied on a CPU: look at the batch-transfer hooks of the module"
    if _pageable(summary):
        if plain:
            return "DataLoader(pin_memory=True), and batch.to(device, non_blocking=True)"
        return "DataLoader(pin_memory=True): Lightning then copies without blocking"
    less = "send less: smaller dtypes, or make on the device what can be made there"
    return f"batch.to(device, non_blocking=True); {less}" if plain else less
