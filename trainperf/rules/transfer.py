"""Does copying the batch to the device take a notable part of the step?"""

from trainperf.evidence import Evidence
from trainperf.phases import Phase
from trainperf.results import Finding, Summary
from trainperf.rules.base import LIMITS, at_most, phase_fraction, setting, severity, value, worst
from trainperf.units import count, duration, rate, share, size


MANY_TENSORS = 16
"""A batch of so many tensors pays the price of a copy that often."""


def transfer(evidence: Evidence) -> Finding | None:
    """The host-to-device copy takes a notable part of the step."""
    summary = evidence.summary
    host, step_s = phase_fraction(summary, Phase.H2D), value(summary, "step_mean_s")
    device = worst(summary, "h2d_fraction")
    if host is None or not step_s:
        return None
    lost = host if device is None else device
    if lost < LIMITS.notable:
        return None
    return Finding(
        id="transfer",
        title=f"moving the batch to the device takes {share(lost)} of the step",
        advice="Make the batch transfer cheaper",
        evidence=(f"{duration(lost * step_s)} of {duration(step_s)} a step", *_evidence(summary)),
        action=_action(summary),
        fraction=lost,
        gain_upper_bound=at_most(lost),
        confidence="high" if device is not None else "medium",
        severity=severity(lost),
    )


def _evidence(summary: Summary) -> list[str]:
    copied, speed = value(summary, "h2d_bytes"), value(summary, "h2d_bytes_per_s")
    tensors, pinned = value(summary, "h2d_tensors"), setting(summary, "pin_memory")
    said = []
    if copied is not None:
        said.append(f"{size(copied)} a step" + (f" at {rate(speed)}" if speed else ""))
    if tensors is not None:
        said.append(f"{count(tensors)} tensors a step")
    if pinned is not None:
        said.append(f"pin_memory={bool(pinned)}")
    return said


def _action(summary: Summary) -> str:
    if summary.run.device == "cpu":
        return "nothing is copied on a CPU: look at the batch-transfer hooks of the module"
    if setting(summary, "pin_memory") == 0:
        return "DataLoader(pin_memory=True): Lightning then copies without blocking"
    if (value(summary, "h2d_tensors") or 0) >= MANY_TENSORS:
        return "put the batch into a few large tensors in collate_fn"
    return "send less: smaller dtypes, or make on the device what can be made there"
