"""Check that the batch is copied from pinned memory without blocking."""

from trainperf.analysis.doctor.base import Case, Outcome, failed, not_applicable, passed, unknown
from trainperf.analysis.rules.base import setting
from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.units import duration, share, size
from trainperf.core.readings import H2D_BYTES, H2D_FRACTION, H2D_S, PHASE_H2D_S


BLOCKING = 0.9
"""Host time over device time of the copy from which the host waits for it."""


def pinned_transfer(case: Case) -> Outcome:
    """H2D uses pinned memory and `non_blocking`.

    Fails with `pin_memory=False`, and when the call takes 90 % of the copy's time or more.  Unknown
    without a DataLoader or timing events.
    """
    summary = case.summary
    if summary.run.device == "cpu":
        return not_applicable("the batch is copied to no device (CPU)")
    pinned, blocking = setting(summary, "pin_memory"), _blocking(summary)
    pinning = (
        "the loader's pin_memory is unknown" if pinned is None else f"pin_memory={bool(pinned)}"
    )
    evidence = (pinning, _cost(summary))
    if pinned == 0:
        return failed(
            "DataLoader(pin_memory=True), and batch.to(device, non_blocking=True)", *evidence
        )
    if pinned is None:
        return unknown(pinning, "load with torch.utils.data.DataLoader")
    if blocking is None:
        return unknown("the copy was not timed on both clocks", case.loop.measures["h2d"])
    if blocking:
        action = "batch.to(device, non_blocking=True): the host waits for each copy"
        return failed(action, *evidence, _clocks(summary))
    return passed(*evidence, _clocks(summary))


def _blocking(summary: Summary) -> bool | None:
    """Whether the transfer call takes as long as the copy; `None` where a clock is missing."""
    host_s, device_s = summary.value(PHASE_H2D_S), summary.value(H2D_S)
    if host_s is None or not device_s:
        return None
    return host_s >= BLOCKING * device_s


def _clocks(summary: Summary) -> str:
    host_s, device_s = summary.value(PHASE_H2D_S), summary.value(H2D_S)
    return f"the copy takes {duration(device_s or 0.0)}, its call {duration(host_s or 0.0)}"


def _cost(summary: Summary) -> str:
    copied, lost = summary.value(H2D_BYTES), summary.value(H2D_FRACTION)
    much = "" if copied is None else f"{size(copied)} per step"
    took = "" if lost is None else f"{share(lost)} of the step"
    return ", ".join(part for part in (much, took) if part)
