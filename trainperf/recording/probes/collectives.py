"""Counter of collectives by phase: where in a step ranks may wait for each other.

From the sequence numbers that torch's process groups keep of their own collectives, read when a
phase begins or ends, in a few steps: nothing is wrapped, and no device is waited for.  That a
collective was issued does not say that anybody waited; the times of the ranks do
(`trainperf.analysis.summary.stragglers`).
"""

import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import torch.distributed as dist

from trainperf.core.phases import FIRST_GAP, PHASES
from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft


FIRST = 4
"""Step before the first one that is counted: DDP and frameworks have set up by then."""
STEPS = 4
"""Counted in a row."""
AGAIN_EVERY = 1000
"""Steps after which it is counted again: what is logged or clipped may change."""

MOST_LOGGED = 1 << 20
"""Characters of NCCL's log: it names its ways as it begins."""

_WAY = re.compile(r"NCCL INFO .*-> .* via (NET/\w+|P2P|SHM)")


class CollectivesProbe(Probe):
    """Counts in the steps that it has the timeline for; a profiler that listens has its place.

    Under the name `collectives` in the run's configuration, e.g. `backward 1, loop 2`: per counted
    step, over all process groups of this rank; `none` where there were none.

    Args:
        device: Type of the one that trains: a process group may have a backend for each.
    """

    name = "collectives"

    def __init__(self, device: str) -> None:
        self._device = device
        self._backend: str | None = None
        self._groups: Sequence[dist.ProcessGroup] = ()
        self._issued = [0] * len(PHASES)
        """By phase, in the step that is being counted."""
        self._slot = self._before = 0
        self._counted = [0] * len(PHASES)
        self._steps = 0
        self._transport: dict[str, Scalar] = {}

    def close(self, draft: Draft) -> None:
        """The step is over, and the next may be counted.  Runs every step."""
        recorder = self.recorder
        if recorder.listener is self:  # a profiler may have taken its place, amid the step perhaps
            self._count()
        if recorder.listener is self:
            self._counted = [a + b for a, b in zip(self._counted, self._issued, strict=True)]
            self._steps += 1
            recorder.listener = None
        if FIRST + STEPS > draft.index % AGAIN_EVERY >= FIRST and recorder.listener is None:
            self._groups, self._issued = counting_groups(), [0] * len(PHASES)
            self._slot, self._before = recorder.recorded_slot, issued_in(self._groups)
            if self._groups:
                backends = dist.get_backend_config().split(",")
                self._backend = dict(each.split(":") for each in backends).get(self._device)
                recorder.listener = self

    def detach(self) -> None:
        """Listen no longer."""
        if self.recorder.listener is self:
            self.recorder.listener = None

    def config(self) -> dict[str, Scalar]:
        """How ranks reach each other; collectives per counted step, of each phase that has any."""
        if not self._steps:
            return {}
        # Once: what is asked every ten seconds may not read a log again.
        self._transport = self._transport or transport(os.environ)
        counted = ", ".join(
            f"{phase.label} {self._counted[phase] / self._steps:.3g}"
            for phase in PHASES
            if self._counted[phase]
        )
        return {"collectives": counted or "none", "backend": self._backend, **self._transport}

    # -- as a listener to phases and gaps ------------------------------------------------------

    def entered(self, slot: int) -> None:
        """A phase begins: what was issued before belongs to the one around it."""
        self._count()
        self._slot = slot

    def left(self) -> None:
        """A phase ended."""
        self.entered(self.recorder.recorded_slot)

    cleared = left

    def _count(self) -> None:
        """What was issued since the last count is the phase's."""
        try:
            issued = issued_in(self._groups)
        except RuntimeError:  # a group is gone: this step is not counted
            self.recorder.listener = None
            return
        if self._slot < FIRST_GAP:
            self._issued[self._slot] += issued - self._before
        self._before = issued


def transport(environment: Mapping[str, str]) -> dict[str, Scalar]:
    """Ways that NCCL took by its own log, and rates of this host's interfaces.

    The log is read only where the user has NCCL write it: `NCCL_DEBUG=INFO` and `NCCL_DEBUG_FILE`.

    Args:
        environment: Variables of this process.
    """
    name = environment.get("NCCL_DEBUG_FILE", "")
    log = Path(name.replace("%h", platform.node()).replace("%p", str(os.getpid())))
    text = ""
    if environment.get("NCCL_DEBUG", "").upper() in ("INFO", "TRACE") and log.is_file():
        with log.open(encoding="utf-8", errors="replace") as lines:
            text = lines.read(MOST_LOGGED)
    ways = ", ".join(sorted({*_WAY.findall(text)}))
    up = {  # as the system says
        name: each.speed * 1e6 / 8 for name, each in psutil.net_if_stats().items() if each.isup
    }
    outside = [name for name in up if is_hardware(INTERFACES / name)]
    fastest = max(outside, key=lambda name: up[name], default="")
    return {
        **({"nccl_ways": ways} if ways else {}),
        "infiniband": any(name.startswith("ib") for name in up),
        "gloo_bytes_per_s": up.get(environment.get("GLOO_SOCKET_IFNAME", "")),
        "fastest_interface": fastest,
        "fastest_bytes_per_s": up.get(fastest),
    }


INTERFACES = Path("/sys/class/net")
"""Of Linux; elsewhere none is known to be hardware."""


def is_hardware(interface: Path) -> bool:
    """Whether there is a card behind it that is no part of a bridge or a bond.

    What is virtual, a container's or a tunnel's, names any rate, and leads to no other host.
    """
    return (interface / "device").exists() and not (interface / "master").exists()


def counting_groups() -> list[dist.ProcessGroup]:
    """The process groups of this rank; none where one of them does not count collectives."""
    try:
        groups = list(dist.distributed_c10d._world.pg_map)  # noqa: SLF001 there is no public way
        issued_in(groups)
    except (AttributeError, RuntimeError):  # a torch that hides or has none; a mute backend
        return []
    return groups


def issued_in(groups: Sequence[dist.ProcessGroup]) -> int:
    """Collectives that were issued so far in these process groups."""
    return sum(
        group._get_sequence_number_for_group()  # type: ignore[attr-defined]  # noqa: SLF001 torch's stubs lack it
        for group in groups
    )
