"""Rule about other processes that keep the host's CPUs busy."""

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.machine.base import (
    costly,
    lasting,
    lost,
    slower_steps,
    stretches,
)
from trainperf.analysis.summary.schema import CauseFacts, HostFacts
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import share


def host_shared(evidence: Evidence) -> Finding | None:
    """Processes that are not this training's keep CPUs busy, and steps take longer meanwhile.

    The bound is what steps take longer while they do than without them.  Where they do all the
    time, the training thread itself must be seen to lack a CPU, for a tenth of the time.

    Wrong where: the others work for this training, e.g. a data server that it did not start itself.
    To confirm: `top` while it trains; the same training while the others are stopped.
    """
    facts = costly(evidence, "host shared")
    if facts is None:
        facts = lasting(evidence, "host shared")
        if facts is None or facts.values.get("waited", 0.0) < LIMITS.notable:
            return None
    who = ", ".join(facts.who) or "other processes"
    busy = f"{facts.values.get('others_cpus', 0.0):.1f} CPUs"
    on = f" of {facts.host}" if len(_hosts(evidence)) > 1 else ""
    which = slower_steps(facts) if facts.slower is not None else "all along"
    return Finding(
        id="host_shared",
        title=f"{which}: {who} kept {busy}{on} busy",
        advice="Train on a host of its own",
        evidence=(*_counted(facts, evidence), *stretches(facts)),
        action="end the other processes or move them; where both must run, give each its CPUs "
        "(taskset, --cpus-per-task, a container's quota)",
        confirm="trainperf report: cpu_busy is close to cpu_own in the machine's table",
        **lost(facts),
    )


def _counted(facts: CauseFacts, evidence: Evidence) -> tuple[str, ...]:
    cpus = next((host.cpus for host in _hosts(evidence) if host.host == facts.host), None)
    parts = [f"{cpus} CPUs on the host"] if cpus else []
    if "waited" in facts.values:
        parts.append(f"the training thread had no CPU {share(facts.values['waited'])} of that time")
    if "cpu_pressure" in facts.values:
        parts.append(f"some task waited for one {share(facts.values['cpu_pressure'])}")
    return tuple(parts)


def _hosts(evidence: Evidence) -> tuple[HostFacts, ...]:
    machine = evidence.summary.machine
    return () if machine is None else machine.hosts
