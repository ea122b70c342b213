"""Rule about devices that lower their clock to stay cool, or because power is short."""

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.machine.base import (
    costly,
    lasting,
    lost,
    place,
    slower_steps,
    stretches,
)
from trainperf.analysis.summary.schema import Cause, CauseFacts
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import share


_COOL = (
    "look at fans, airflow and the room (nvidia-smi -q -d PERFORMANCE,TEMPERATURE); until then a "
    "lower power limit (nvidia-smi -pl) keeps the clock even"
)
_POWER = (
    "look at the power supply and its cables: the board is asked to draw less "
    "(nvidia-smi -q -d PERFORMANCE,POWER)"
)
_CAUSES: tuple[Cause, ...] = ("thermal", "power brake")


def device_throttled(evidence: Evidence) -> Finding | None:
    """A device lowers its clock by itself: it is too hot, or its power supply asks for it.

    The bound is what steps take longer meanwhile than outside.  A power limit that is reached
    (`power cap`) is no fault: large products reach it on a healthy device.

    Wrong where: steps of the same seconds are slow for another reason as well, e.g. longer batches.
    To confirm: `nvidia-smi -q -d PERFORMANCE` while it trains; the same steps on a cool device.
    """
    facts = costly(evidence, *_CAUSES)
    if facts is not None:
        return _finding(facts, evidence, slower_steps(facts))
    facts = lasting(evidence, *_CAUSES)
    if facts is None or "sm_mhz" not in facts.values:
        return None
    return _finding(facts, evidence, f"in {share(facts.fraction)} of the time of steps")


def _finding(facts: CauseFacts, evidence: Evidence, which: str) -> Finding:
    clock = facts.values.get("sm_mhz")
    ran = f"ran at {clock:,.0f} MHz" if clock is not None else "lowered its clock"
    where = place(facts, evidence)
    thermal = facts.cause == "thermal"
    return Finding(
        id="device_throttled",
        title=f"{which}: the GPU{where} {ran} ({facts.cause})"
        if facts.slower is not None
        else f"the GPU{where} {ran} ({facts.cause}) {which}",
        advice="Cool the GPU" if thermal else "Give the GPU its power",
        evidence=(*_clocks(facts, evidence), *stretches(facts)),
        action=_COOL if thermal else _POWER,
        effort="hours",
        confirm="trainperf report: no step is slower for the clock of a GPU",
        **lost(facts),
    )


def _clocks(facts: CauseFacts, evidence: Evidence) -> tuple[str, ...]:
    machine = evidence.summary.machine
    hosts = [] if machine is None else [host for host in machine.hosts if host.host == facts.host]
    devices = hosts[0].devices if hosts else ()
    device = (
        devices[facts.device] if facts.device is not None and facts.device < len(devices) else None
    )
    clock, outside = facts.values.get("sm_mhz"), facts.values.get("outside_sm_mhz")
    most = device.most_mhz if device is not None else None
    parts = []
    if clock is not None and outside is not None:
        parts.append(f"{clock:,.0f} MHz meanwhile, {outside:,.0f} MHz otherwise")
    elif clock is not None and most is not None:
        parts.append(f"{clock:,.0f} of {most:,.0f} MHz")
    if "celsius" in facts.values:
        parts.append(f"{facts.values['celsius']:.0f} °C")
    if "power_w" in facts.values:
        parts.append(f"{facts.values['power_w']:.0f} W")
    return tuple(parts)
