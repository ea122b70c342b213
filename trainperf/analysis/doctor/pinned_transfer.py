"""Check that the batch is copied from pinned memory without blocking."""

from trainperf.analysis.doctor.base import Case, Outcome, failed, not_applicable, passed, unknown
from trainperf.analysis.rules.base import setting
from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.units import duration, share, size
from trainperf.core.readings import H2D_BYTES, H2D_FRACTION, H2D_S, PHASE_H2D_S


def pinned_transfer(case: Case) -> Outcome:
    """H2D uses pinned memory and `non_blocking`.

    Fails with `pin_memory=False`, and when the call takes 90 % of the copy's time or more.  Unknown
    without a DataLoader or timing events.
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
    took = "" if lost is None else f"{share(lost)} of the step"
    return ", ".join(part for part in (much, took) if part)
