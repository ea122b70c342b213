"""Rule about hosts that are short of memory, of disk bandwidth or of network."""

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.machine.base import (
    costly,
    lasting,
    lost,
    slower_steps,
    stretches,
)
from trainperf.analysis.summary.machine import STALLED
from trainperf.analysis.summary.schema import Cause, CauseFacts
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import rate, share, size


_ADVICE: dict[Cause, str] = {
    "memory": "Make room in the host's memory",
    "disk": "Read less from that disk",
    "network": "Look at the network",
}
_ACTIONS: dict[Cause, str] = {
    "memory": "fewer loader workers, a smaller prefetch_factor or cache, or a larger host",
    "disk": "keep the data on a local disk or in memory, in larger pieces; write checkpoints "
    "elsewhere",
    "network": "lost segments are a cable, a switch or too many senders (ethtool -S): keep data "
    "that is read often on a local disk",
}


def host_pressure(evidence: Evidence) -> Finding | None:
    """Tasks on the host wait for memory or a disk, or segments are lost, and steps take longer.

    The bound is what steps take longer meanwhile.  A host that swaps nearly all the time is a
    finding without one.

    Wrong where: what waits is another job's, and these steps are slow for a reason of their own.
    To confirm: `/proc/pressure` and `nstat TcpRetransSegs` while it trains, next to the slow steps.
    """
    facts = costly(evidence, "memory", "disk", "network") or lasting(evidence, "memory")
    if facts is None:
        return None
    which = slower_steps(facts) if facts.slower is not None else "nearly all the time"
    return Finding(
        id="host_pressure",
        title=f"{which}: {_what(facts)}",
        advice=_ADVICE[facts.cause],
        evidence=(*_counted(facts), *stretches(facts)),
        action=_ACTIONS[facts.cause],
        effort="hours",
        confirm=f"trainperf report: no step is slower for the host's {facts.cause}",
        **lost(facts),
    )


def _what(facts: CauseFacts) -> str:
    values = facts.values
    if facts.cause == "network":
        return f"{values.get('net_retransmitted', 0.0):,.0f} TCP segments per second were lost"
    if facts.cause == "disk":
        return f"tasks on the host waited for a disk {share(values['io_pressure'])} of the time"
    waited = values.get("memory_pressure", 0.0)
    # A host that swaps may be one that does not count who waits, or on which nobody has to.
    if waited < STALLED["memory_pressure"]:
        return f"the host swapped {rate(values.get('swapped', 0.0))}"
    return f"tasks on the host waited for memory {share(waited)} of the time"


def _counted(facts: CauseFacts) -> tuple[str, ...]:
    values, parts = facts.values, []
    if facts.cause == "memory":
        if "memory_free" in values:
            parts.append(f"{size(values['memory_free'])} left")
        if values.get("swapped"):
            parts.append(f"{rate(values['swapped'])} swapped")
    if facts.cause == "disk":
        moved = {"disk_read": "read", "disk_written": "written"}
        parts += [f"{rate(values[name])} {how}" for name, how in moved.items() if name in values]
    return tuple(parts)
