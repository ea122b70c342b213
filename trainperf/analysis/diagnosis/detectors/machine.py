"""Detectors of the machine beside the loop: clocks, neighbours, pressure."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain

from trainperf.analysis.diagnosis.account import (
    WORK,
    Claim,
    StepAccount,
    of_regions,
    of_slots,
)
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.detectors.operator_causes import is_small
from trainperf.analysis.diagnosis.facts import Facts, slows
from trainperf.analysis.summary.schema import Cause as MachineCause
from trainperf.analysis.summary.schema import CauseFacts
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import plural, rate, share, size, step_range
from trainperf.core.machine.limits import cpus_listed, listed


_WHAT: Mapping[MachineCause, tuple[str, str, tuple[str, ...]]] = {
    "thermal": (
        "the GPU{place} lowered its clock (thermal)",
        "cool_device",
        ("sm_mhz", "outside_sm_mhz", "celsius", "power_w"),
    ),
    "power brake": (
        "the GPU{place} lowered its clock (power brake)",
        "power_device",
        ("sm_mhz", "outside_sm_mhz", "celsius", "power_w"),
    ),
    "device shared": (
        "{who} used the GPU{place} too",
        "own_device",
        ("others", "others_busy"),
    ),
    "host shared": (
        "{who} kept {cpus:.1f} CPUs{place} busy",
        "own_host",
        ("waited", "cpu_pressure"),
    ),
    "memory": (
        "the host{place} was short of memory",
        "room_in_memory",
        ("memory_pressure", "swapped", "memory_free"),
    ),
    "disk": (
        "tasks on the host{place} waited for a disk",
        "room_in_disk",
        ("io_pressure", "disk_read", "disk_written"),
    ),
}
"""What happened, the change, and the values that show it."""

_IN_WORDS: Mapping[str, Callable[[float], str]] = {
    "sm_mhz": "{:,.0f} MHz meanwhile".format,
    "outside_sm_mhz": "{:,.0f} MHz otherwise".format,
    "celsius": "{:.0f} °C".format,
    "power_w": "{:.0f} W".format,
    "others": lambda number: f"{plural(max(1, round(number)), 'other job')} on it",
    "others_busy": lambda part: f"{share(part)} of its multiprocessors' time",
    "waited": lambda part: f"the training thread had no CPU {share(part)} of that time",
    "cpu_pressure": lambda part: f"some task waited for one {share(part)}",
    "memory_pressure": lambda part: f"tasks waited for memory {share(part)} of the time",
    "swapped": lambda pace: f"{rate(pace)} swapped",
    "memory_free": lambda left: f"{size(left)} left",
    "io_pressure": lambda part: f"tasks waited for a disk {share(part)} of the time",
    "disk_read": lambda pace: f"{rate(pace)} read",
    "disk_written": lambda pace: f"{rate(pace)} written",
}
"""Each value in words."""


def _which(cause: CauseFacts) -> str:
    """Which steps, and by how much: `steps 4,100–4,300 were 12 % slower`."""
    if cause.slower is None:
        return f"in {share(cause.fraction)} of the time"
    number = "" if cause.lasted else f"{cause.steps:,} of "
    which = step_range(cause.first_step, cause.last_step)
    return f"{number}{which} were {share(cause.slower)} slower"


def _place(cause: CauseFacts, facts: Facts) -> str:
    """Which device or host, where there are several; e.g. ` 3 of node7`."""
    hosts = {host.host: host for host in facts.summary.hosts}
    devices = len(hosts[cause.host].devices) if cause.host in hosts else 0
    number = f" {cause.device}" if cause.device is not None and devices > 1 else ""
    return f"{number}{f' of {cause.host}' if len(hosts) > 1 else ''}"


def _lasts(cause: CauseFacts) -> bool:
    """Whether it held for most of the run, so that nothing tells what steps take without it.

    Other processes count then where the training thread was seen to lack a CPU; a disk never, as a
    training may read all the time.
    """
    return (
        cause.cause != "disk"
        and cause.slower is None
        and cause.fraction >= LIMITS.mostly
        and (cause.cause != "host shared" or cause.values.get("waited", 0.0) >= LIMITS.notable)
    )


def _worst(name: str, account: StepAccount, facts: Facts, *causes: MachineCause) -> Cause | None:
    """The cause that lost most by these, in words; else one that lasted and has no gain."""
    own = [each for each in facts.machine_causes if each.cause in causes]
    cause = next(chain(filter(slows, own), filter(_lasts, own)), None)
    if cause is None:
        return None
    what, change, values = _WHAT[cause.cause]
    who, cpus = ", ".join(cause.who) or "other processes", cause.values.get("others_cpus", 0.0)
    judged, slots = cause.slower is not None, account.loop_s.items()
    return Cause(
        id=name,
        title=f"{_which(cause)}: {what.format(who=who, cpus=cpus, place=_place(cause, facts))}",
        evidence=tuple(
            _IN_WORDS[value](cause.values[value]) for value in values if cause.values.get(value)
        ),
        # What a unified device holds is the host's memory.
        changes=(
            Use(
                change="leave_room"
                if change == "room_in_memory" and facts.run.backend.unified
                else change
            ),
        ),
        # All that the step does is slower, whoever owns it: what is left of it is.
        claim=Claim(
            owns_s={slot: cause.lost_fraction * spent_s for slot, spent_s in slots},
            removes_s=cause.lost_fraction * account.step_s,
            shrinks=cause.lost_fraction,
        )
        if judged
        else None,
        confidence="high" if judged else "medium",
        severity=None if judged else "medium",
    )


def device_throttled(account: StepAccount, facts: Facts) -> Cause | None:
    """A device lowers its clock by itself: it is too hot, or its power supply asks for it.

    Removed is what steps take longer meanwhile than outside.  A power limit that is reached is no
    fault: large products reach it on a healthy device.

    Wrong where: steps of the same seconds are slow for another reason as well, e.g. longer batches.
    To confirm: `nvidia-smi -q -d PERFORMANCE` while it trains; the same steps on a cool device.
    """
    return _worst("device_throttled", account, facts, "thermal", "power brake")


def device_shared(account: StepAccount, facts: Facts) -> Cause | None:
    """Another process computes on the device, and steps take longer meanwhile, or nobody knows.

    Removed is what steps take longer while it does than without it.  One that only holds memory
    there is no finding.

    Wrong where: the other process works for this training, e.g. one that evaluates its checkpoints.
    To confirm: `nvidia-smi pmon` while it trains; the same training with the device to itself.
    """
    return _worst("device_shared", account, facts, "device shared")


def host_shared(account: StepAccount, facts: Facts) -> Cause | None:
    """Processes that are not this training's keep CPUs busy, and steps take longer meanwhile.

    Removed is what steps take longer while they do than without them.  Where they do all the time,
    the training thread itself must be seen to lack a CPU, for a tenth of the time.

    Wrong where: the others work for this training, e.g. a data server that it did not start itself.
    To confirm: `top` while it trains; the same training while the others are stopped.
    """
    return _worst("host_shared", account, facts, "host shared")


def host_pressure(account: StepAccount, facts: Facts) -> Cause | None:
    """Tasks on the host wait for memory or a disk, and steps take longer.

    Removed is what steps take longer meanwhile.  A host that is short of memory
    nearly all the time is a finding without a gain.  Where a device shares that memory it is the
    model's first, and the loader's last.

    Wrong where: what waits is another job's, and these steps are slow for a reason of their own.
    To confirm: `/proc/pressure` while it trains, next to the slow steps.
    """
    return _worst("host_pressure", account, facts, "memory", "disk")


@worth(LIMITS.notable)
def idle_cores(account: StepAccount, facts: Facts) -> Cause | None:
    """The model computes on the host with half as many threads as cores are free, or fewer.

    A call of `torch.set_num_threads` that was left in, or `OMP_NUM_THREADS=1`, as `torchrun` sets
    it.  Removed is what operators whose work is worth a second thread would take less, were it
    divided evenly.  Cores of the loader's workers, of other threads and of other processes are not
    free.

    With fewer than four cores the loader and the system have use for the others.

    Wrong where: another job of this host is about to need them.
    To confirm: `trainperf prove` with as many threads.
    """
    cores, host = facts.number("host_cores"), facts.number("host_cpus")
    if account.device is not None or not (cores and host and account.cpus and account.step_s):
        return None
    loading_s = 0.0 if account.loader is None else account.loader.computes_s
    busy = account.others_cpus + (loading_s + sum(account.threads_s.values())) / account.step_s
    # Rounded first: what is busy is an estimate.
    free = int(round((account.cpus - busy) * min(1.0, cores / host), 1))
    threads = account.model_threads
    if free < max(4, 2 * threads):
        return None
    rows = (row for row in account.regions if row.slot in WORK and not is_small(row, facts))
    claim = of_regions(rows) if account.regions else of_slots(account, *WORK)
    return Cause(
        id="idle_cores",
        title=f"the model computes with {plural(threads, 'thread')}; {free} cores are free for it",
        evidence=(
            f"{cores:g} cores, {account.cpus:g} CPUs for this rank, {busy:.1f} of them busy",
        ),
        changes=(Use(change="more_threads", values={"number": free}),),
        claim=replace(claim, removes_s=(1 - threads / free) * claim.removes_s),
        confidence="medium",
    )


def far_cpus(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 a setting
    """The process may run on no CPU that is near its device.

    What it copies and launches crosses the link between the sockets.  How much that costs is not
    known.  Read of the first rank; written, never run.

    Wrong where: the near CPUs are another job's.
    To confirm: `nvidia-smi topo -m`; `trainperf prove` with CPUs of the device's own node.
    """
    own, near = (cpus_listed(str(facts.settings.get(n) or "")) for n in ("cpu_mask", "device_cpus"))
    if not own or not near or own & near:
        return None
    return Cause(
        id="far_cpus",
        title=f"the process may run on CPUs {listed(own)}, and its device is near {listed(near)}",
        evidence=("none of them is on the NUMA node of the device",),
        changes=(Use(change="near_cpus", values={"cpus": listed(near)}),),
        confidence="medium",
        severity="medium",
    )
