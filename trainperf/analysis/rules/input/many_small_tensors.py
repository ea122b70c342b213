"""Rule about batches of many small tensors."""

from trainperf.analysis.rules.base import Evidence, leaves_cold_caches
from trainperf.analysis.rules.input.base import (
    MANY_TENSORS,
    lost_to_loader,
    moved,
    small_copies,
    small_tensors_wait,
)
from trainperf.analysis.rules.input.remedies import parts
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding, costs
from trainperf.core.formatting.units import count, duration, rate, share, size
from trainperf.core.readings import H2D_BYTES, H2D_BYTES_PER_S, H2D_TENSORS, STEP_MEAN_S


@leaves_cold_caches
def many_small_tensors(evidence: Evidence) -> Finding | None:
    """The batch is many small tensors, and the step pays for the handling of each.

    On a device for a copy of each, which every run shows; in the loader for making, stacking and
    sending each, which an anatomy of the loader shows.

    Wrong where: the model needs them one by one, so that joining them moves the work and saves
    none.
    To confirm: `trainperf run --loader-anatomy`: times of making, stacking and sending a batch.
    """
    summary = evidence.summary
    if small_copies(summary):
        return _copied(summary)
    return _loaded(summary) if small_tensors_wait(summary) else None


def _copied(summary: Summary) -> Finding | None:
    lost, step_s = moved(summary), summary.value(STEP_MEAN_S)
    tensors, copied = summary.value(H2D_TENSORS), summary.value(H2D_BYTES)
    if lost is None or not step_s or not tensors or copied is None:
        return None
    speed = summary.value(H2D_BYTES_PER_S)
    return _finding(
        f"{share(lost)} of the step goes into copying {count(round(tensors))} small tensors",
        (
            f"{duration(lost * step_s)} of {duration(step_s)} per step",
            f"{size(copied / tensors)} per tensor" + (f", at {rate(speed)}" if speed else ""),
        ),
        "one tensor per batch: torch.cat the fields in collate_fn, and split them on the device",
        lost,
    )


def _loaded(summary: Summary) -> Finding | None:
    lost, anatomy = lost_to_loader(summary), summary.loader
    if lost is None or anatomy is None:
        return None
    each = anatomy.batch_bytes / anatomy.tensors
    return _finding(
        f"{share(lost)} of the step waits for batches of {count(round(anatomy.tensors))} "
        "small tensors",
        (*parts(anatomy), f"{size(each)} per tensor"),
        "one tensor per sample in __getitem__ for all its fields, taken apart in the model",
        lost,
        where=anatomy.getitem_line or "",
    )


def _finding(
    title: str, evidence: tuple[str, ...], action: str, lost: float, *, where: str = ""
) -> Finding:
    return Finding(
        id="many_small_tensors",
        title=title,
        advice="Put the batch into fewer tensors",
        evidence=evidence,
        action=action,
        **costs(lost, confidence="medium"),
        effort="hours",
        where=where,
        confirm=f"a batch of fewer than {MANY_TENSORS} tensors, and a shorter step",
    )
