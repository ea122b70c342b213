"""Contents of `summary.json` about the machine: hosts, devices, and what they did."""

from typing import Literal

import msgspec

from trainperf.core.artifacts.machine import SampledDevice, SampledHost
from trainperf.core.findings import LIMITS


Cause = Literal["thermal", "power brake", "device shared", "host shared", "memory", "disk"]
"""What a machine did that can make steps slower."""


class CauseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One cause on one host, or on one of its devices, over the whole run."""

    cause: Cause
    host: str
    device: int | None = None
    """Place of the device on its host; `None` where it is the host's."""
    fraction: float
    """Share of the time of steady steps."""
    steps: int
    first_step: int
    """The first of them, and the last: between these it may have come and gone."""
    last_step: int
    slower: float | None = None
    """Median step in it over that outside of all causes, minus 1; `None` where there are too few of
    either."""
    lost_fraction: float = 0.0
    """Share of the time of steady steps that they take longer in it than the median outside."""
    shown: bool = False
    """Whether three in four of its steps are slower than the median outside."""
    values: dict[str, float] = {}
    """Means of what was sampled in it, and of a device outside of it, e.g. `outside_sm_mhz`."""
    who: tuple[str, ...] = ()
    """Names of other processes, the one that kept most CPUs busy first."""

    @property
    def lasted(self) -> bool:
        """Whether nearly all steps from its first to its last were in it."""
        return self.steps >= LIMITS.regular * (self.last_step - self.first_step + 1)


class DeviceFacts(SampledDevice, frozen=True, kw_only=True):
    """One device while the fit ran."""

    means: dict[str, float] = msgspec.field(default_factory=dict)
    """Of its columns, over the samples, without what it does not tell: `sm_mhz`, `power_w`,
    `celsius`, `busy`, `others`, `others_busy`."""
    worst: dict[str, float] = msgspec.field(default_factory=dict)
    """The largest of them; of `sm_mhz` the least."""


class HostFacts(SampledHost, frozen=True, kw_only=True):
    """One host while the fit ran."""

    samples: int
    means: dict[str, float]
    """Of the host's columns (`core.artifacts.machine` says what they are)."""
    worst: dict[str, float]
    """The largest of them; of `memory_free` the least."""
    devices: tuple[DeviceFacts, ...] = ()


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All hosts that were sampled."""

    hosts: tuple[HostFacts, ...]
    causes: tuple[CauseFacts, ...] = ()
    """Those that came up at all, the one that lost most first."""
