"""Checks of the way from the loader to the device."""

from trainperf.analysis.doctor.base import (
    Case,
    Outcome,
    failed,
    failed_by,
    fails_on,
    not_applicable,
    passed,
    reason,
    unknown,
)
from trainperf.analysis.rules.base import setting
from trainperf.analysis.rules.input.base import awaits_requests, lost_to_loader
from trainperf.analysis.rules.input.workers import cheaper_than_a_worker, no_cpu_free
from trainperf.analysis.summary.machine import link_words
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, duration, share, size
from trainperf.core.readings import (
    DATA_STALL_FRACTION,
    DATA_WAIT_FRACTION,
    H2D_BYTES,
    H2D_FRACTION,
    H2D_S,
    H2D_TENSORS,
    PHASE_H2D_S,
    STEP_MEAN_S,
)


@fails_on("data_wait", "epoch_start")
def loader(case: Case) -> Outcome:
    """The DataLoader does not make the device wait.

    Fails on `data_wait` and `epoch_start`, and on a wait of a tenth of the step whatever its cause,
    but not where that is below what a worker would take to hand a batch over.  Unknown without
    enough steady steps.

    Wrong where: the batches of the measured steps were in the page cache, and later ones are not.
    To confirm: `trainperf try --only free_loader SCRIPT`.
    """
    summary = case.summary
    waited, stalled = summary.value(DATA_WAIT_FRACTION), summary.value(DATA_STALL_FRACTION)
    lost = lost_to_loader(summary)
    if waited is None or lost is None:
        few = "too few steady steps"
        why = reason(summary, DATA_WAIT_FRACTION) if waited is None else few
        return unknown(why, f"run past the warm-up with {case.loop.measures['data wait']}")
    evidence = f"{share(waited)} of the step in the loader's next()"
    if awaits_requests(summary):
        return passed(evidence, "no DataLoader: the loop waits for requests")
    if lost >= LIMITS.notable:
        return _unnamed_wait(case, waited, evidence)
    if summary.run.device == "cpu":
        return passed(evidence)
    if stalled is None:
        why = f"{evidence}; what the device lost to it was not measured"
        return unknown(why, case.loop.everything)
    return passed(evidence, f"the device idled for data {share(stalled)}")


def _unnamed_wait(case: Case, waited: float, evidence: str) -> Outcome:
    """A wait of which `data_wait` says nothing: other rules name its cause, or it is no fault."""
    waited_s = waited * (case.summary.value(STEP_MEAN_S) or 0.0)
    by_cause = failed_by(case, ("many_small_tensors", "oversubscription", "straggler"))
    if by_cause is None and cheaper_than_a_worker(case.summary, waited_s):
        return passed(evidence, "getting a batch from a worker would take longer")
    free = not no_cpu_free(case.summary)
    more = "give the DataLoader more workers" if free else "make batches cheaper: no CPU is free"
    return by_cause or failed(more, evidence)


def pinned_transfer(case: Case) -> Outcome:
    """H2D uses pinned memory and `non_blocking`.

    Fails with `pin_memory=False`, and when the call takes 90 % of the copy's time or more.  Unknown
    without a DataLoader or timing events.

    Wrong where: `pin_memory` is configured and a collate function returns tensors that cannot be
    pinned.
    To confirm: the reading `h2d_bytes_per_s` against the link's rate; a trace.
    """
    summary = case.summary
    if summary.run.device == "cpu":
        return not_applicable("the batch is copied to no device (CPU)")
    pinned = setting(summary, "pin_memory")
    if pinned is None:
        why = "the loader's pin_memory is unknown"
        return unknown(why, "load with torch.utils.data.DataLoader")
    evidence = (f"pin_memory={bool(pinned)}", _cost(summary))
    if not pinned:
        action = "DataLoader(pin_memory=True), and batch.to(device, non_blocking=True)"
        return failed(action, *evidence)
    host_s, device_s = summary.value(PHASE_H2D_S), summary.value(H2D_S)
    if host_s is None or not device_s:
        return unknown("the copy was not timed on both clocks", case.loop.measures["h2d"])
    clocks = f"the copy takes {duration(device_s)}, its call {duration(host_s)}"
    if host_s >= 0.9 * device_s:
        action = "batch.to(device, non_blocking=True): the host waits for each copy"
        return failed(action, *evidence, clocks)
    return passed(*evidence, clocks)


def _cost(summary: Summary) -> str:
    copied, lost = summary.value(H2D_BYTES), summary.value(H2D_FRACTION)
    much = "" if copied is None else f"{size(copied)} per step"
    speed = link_words(summary)
    took = "" if lost is None else f"{share(lost)} of the step"
    return ", ".join(part for part in (much, speed, took) if part)


@fails_on("many_small_tensors")
def batch_tensors(case: Case) -> Outcome:
    """The batch is not many small tensors.

    Fails on `many_small_tensors`.  Unknown without a GPU or a look into the loader.

    Wrong where: the tensors are large: then their number costs nothing.
    To confirm: the readings `h2d_tensors` and `h2d_bytes`.
    """
    summary, anatomy = case.summary, case.evidence.documents.loader
    tensors, copied = summary.value(H2D_TENSORS), summary.value(H2D_BYTES)
    if tensors is None and anatomy is not None:
        tensors, copied = anatomy.tensors, anatomy.batch_bytes
    if tensors is not None:
        each = f" of {size(copied / tensors)} each" if copied and tensors else ""
        return passed(f"{count(tensors)} tensors per step{each}")
    if summary.run.device == "cpu":
        return not_applicable("the batch is copied to no device (CPU)")
    return unknown("the batch's tensors were not counted", case.loop.measures["h2d"])
