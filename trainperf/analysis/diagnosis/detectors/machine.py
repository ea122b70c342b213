"""Detectors of the machine beside the loop: clocks, neighbours, pressure."""

from collections.abc import Iterable
from typing import get_args

from trainperf.analysis.diagnosis.account import Claim, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.summary.schema import Cause as MachineCause
from trainperf.analysis.summary.schema import CauseFacts, MachineWindow
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import plural, rate, share, size


MOSTLY = 0.8
"""Of slower steps, and of how much slower they are, that a cause must account for."""


def _costly(facts: Facts, *causes: MachineCause) -> CauseFacts | None:
    """The one of these that lost most, where steps in it are shown to be slower."""
    machine = facts.machine
    if machine is None or facts.steady_steps < LIMITS.steps:
        return None
    shown = (
        each
        for each in machine.causes
        if each.cause in causes and each.shown and (each.slower or 0.0) >= LIMITS.worth
    )
    return next((each for each in shown if each.lost_fraction >= LIMITS.worth / 5), None)


def _lasting(facts: Facts, *causes: MachineCause) -> CauseFacts | None:
    """One that held for most of the run, so that nothing tells what steps take without it."""
    if facts.machine is None or facts.steady_steps < LIMITS.steps:
        return None
    own = (each for each in facts.machine.causes if each.cause in causes and each.slower is None)
    return next((each for each in own if each.fraction >= LIMITS.mostly), None)


def explained(facts: Facts, first_step: int, last_step: int, slower: float) -> bool:
    """Whether the machine is why just these steps are slower."""
    for name in get_args(MachineCause):
        cause = _costly(facts, name)
        if cause is None or (cause.slower or 0.0) < MOSTLY * slower:
            continue
        inside = sum(
            max(0, min(last_step, window.last_step) - max(first_step, window.first_step) + 1)
            for window in cause.windows
        )
        if inside >= MOSTLY * (last_step - first_step + 1):
            return True
    return False


def _stretch(window: MachineWindow) -> str:
    """E.g. `steps 4,100–4,300`."""
    if window.first_step == window.last_step:
        return f"step {window.first_step:,}"
    return f"steps {window.first_step:,}–{window.last_step:,}"


def _which(cause: CauseFacts) -> str:
    """Which steps, and by how much: `steps 4,100–4,300 were 12 % slower`."""
    if cause.slower is None:
        return f"in {share(cause.fraction)} of the time"
    which = _stretch(cause.windows[0]) if len(cause.windows) == 1 else plural(cause.steps, "step")
    return f"{which} were {share(cause.slower)} slower"


def _slowed_by(
    name: str, account: StepAccount, cause: CauseFacts, what: str, evidence: Iterable[str], use: Use
) -> Cause:
    """The cause in words, with the longest stretches of steps where there are several."""
    longest = sorted(cause.windows, key=lambda window: -window.seconds)[:2]
    stretches = ", ".join(map(_stretch, sorted(longest, key=lambda window: window.first_step)))
    several = (f"the longest: {stretches}",) if len(cause.windows) > 1 else ()
    lost_s = cause.lost_fraction * account.step_s
    return Cause(
        id=name,
        title=f"{_which(cause)}: {what}",
        evidence=(*evidence, *several),
        changes=(use,),
        claim=None if cause.slower is None else Claim(removes_s=lost_s),
        confidence="medium" if cause.slower is None else "high",
        severity="medium" if cause.slower is None else None,
    )


def device_throttled(account: StepAccount, facts: Facts) -> Cause | None:
    """A device lowers its clock by itself: it is too hot, or its power supply asks for it.

    Removed is what steps take longer meanwhile than outside.  A power limit that is reached is no
    fault: large products reach it on a healthy device.

    Wrong where: steps of the same seconds are slow for another reason as well, e.g. longer batches.
    To confirm: `nvidia-smi -q -d PERFORMANCE` while it trains; the same steps on a cool device.
    """
    cause = _costly(facts, "thermal", "power brake") or _lasting(facts, "thermal", "power brake")
    clock = None if cause is None else cause.values.get("sm_mhz")
    if cause is None or (cause.slower is None and clock is None):
        return None
    ran = "lowered its clock" if clock is None else f"ran at {clock:,.0f} MHz"
    outside, values = cause.values.get("outside_sm_mhz"), cause.values
    evidence = [
        *(
            [f"{clock:,.0f} MHz meanwhile, {outside:,.0f} MHz otherwise"]
            if clock and outside
            else []
        ),
        *([f"{values['celsius']:.0f} °C"] if "celsius" in values else []),
        *([f"{values['power_w']:.0f} W"] if "power_w" in values else []),
    ]
    change = "cool_device" if cause.cause == "thermal" else "power_device"
    what = f"the GPU{_place(cause, facts)} {ran} ({cause.cause})"
    return _slowed_by("device_throttled", account, cause, what, evidence, Use(change=change))


def _place(cause: CauseFacts, facts: Facts) -> str:
    """Which device or host, where there are several; e.g. ` 3 of node7`."""
    hosts = {} if facts.machine is None else {host.host: host for host in facts.machine.hosts}
    devices = len(hosts[cause.host].devices) if cause.host in hosts else 0
    number = f" {cause.device}" if cause.device is not None and devices > 1 else ""
    return f"{number}{f' of {cause.host}' if len(hosts) > 1 else ''}"


def device_shared(account: StepAccount, facts: Facts) -> Cause | None:
    """Another process computes on the device, and steps take longer meanwhile, or nobody knows.

    Removed is what steps take longer while it does than without it.  One that only holds memory
    there is no finding.

    Wrong where: the other process works for this training, e.g. one that evaluates its checkpoints.
    To confirm: `nvidia-smi pmon` while it trains; the same training with the device to itself.
    """
    cause = _costly(facts, "device shared") or _lasting(facts, "device shared")
    if cause is None:
        return None
    took = cause.values.get("others_busy")
    evidence = [
        f"{max(1, round(cause.values.get('others', 1.0)))} other processes on it",
        *([] if took is None else [f"{share(took)} of its multiprocessors' time"]),
    ]
    what = f"{', '.join(cause.who) or 'another process'} used the GPU{_place(cause, facts)} too"
    return _slowed_by("device_shared", account, cause, what, evidence, Use(change="own_device"))


def host_shared(account: StepAccount, facts: Facts) -> Cause | None:
    """Processes that are not this training's keep CPUs busy, and steps take longer meanwhile.

    Removed is what steps take longer while they do than without them.  Where they do all the time,
    the training thread itself must be seen to lack a CPU, for a tenth of the time.

    Wrong where: the others work for this training, e.g. a data server that it did not start itself.
    To confirm: `top` while it trains; the same training while the others are stopped.
    """
    cause = _costly(facts, "host shared")
    if cause is None:
        cause = _lasting(facts, "host shared")
        if cause is None or cause.values.get("waited", 0.0) < LIMITS.notable:
            return None
    values = cause.values
    evidence = [
        *(
            [f"the training thread had no CPU {share(values['waited'])} of that time"]
            if "waited" in values
            else []
        ),
        *(
            [f"some task waited for one {share(values['cpu_pressure'])}"]
            if "cpu_pressure" in values
            else []
        ),
    ]
    busy = f"{values.get('others_cpus', 0.0):.1f} CPUs{_place(cause, facts)}"
    what = f"{', '.join(cause.who) or 'other processes'} kept {busy} busy"
    return _slowed_by("host_shared", account, cause, what, evidence, Use(change="own_host"))


def host_pressure(account: StepAccount, facts: Facts) -> Cause | None:
    """Tasks on the host wait for memory or a disk, or segments are lost, and steps take longer.

    Removed is what steps take longer meanwhile.  A host that swaps nearly all the time is a finding
    without a gain.

    Wrong where: what waits is another job's, and these steps are slow for a reason of their own.
    To confirm: `/proc/pressure` and `nstat TcpRetransSegs` while it trains, next to the slow steps.
    """
    cause = _costly(facts, "memory", "disk", "network") or _lasting(facts, "memory")
    if cause is None:
        return None
    values = cause.values
    pressure = share(values.get("memory_pressure", values.get("io_pressure", 0.0)))
    waited = f"tasks on the host waited for memory {pressure} of the time"
    if values.get("swapped") and not values.get("memory_pressure"):
        waited = f"the host swapped {rate(values['swapped'])}"
    what = {
        "network": f"{values.get('net_retransmitted', 0.0):,.0f} TCP segments per second were lost",
        "disk": f"tasks on the host waited for a disk {pressure} of the time",
    }.get(cause.cause, waited)
    evidence = [
        *([f"{size(values['memory_free'])} left"] if "memory_free" in values else []),
        *([f"{rate(values['disk_read'])} read"] if "disk_read" in values else []),
        *([f"{rate(values['disk_written'])} written"] if "disk_written" in values else []),
    ]
    change = f"room_in_{cause.cause}"
    return _slowed_by("host_pressure", account, cause, what, evidence, Use(change=change))
