"""Contents of `summary.json` about the machine: hosts, devices, and what they did."""

from typing import Literal

import msgspec


Cause = Literal[
    "thermal", "power brake", "device shared", "host shared", "memory", "disk", "network"
]
"""What a machine did that can make steps slower."""


class MachineWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time in which the machine did so, and the steady steps in it."""

    first_step: int
    last_step: int
    steps: int
    seconds: float
    slower: float | None
    """Mean step in it over that outside of all such stretches, minus 1; `None` with too few."""


class CauseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One cause on one host, or on one of its devices, over the whole run."""

    cause: Cause
    host: str
    device: int | None = None
    """Place of the device on its host; `None` where it is the host's."""
    fraction: float
    """Share of the time of steady steps."""
    steps: int
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
    windows: tuple[MachineWindow, ...] = ()
    """The longest ones, in their order."""


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One device while the fit ran."""

    name: str
    most_mhz: float | None = None
    """Of the chip, not of the run."""
    limit_w: float | None = None
    means: dict[str, float] = {}
    """Of its columns, over the samples, without what it does not tell: `sm_mhz`, `power_w`,
    `celsius`, `busy`, `others`, `others_busy`."""
    worst: dict[str, float] = {}
    """The largest of them; of `sm_mhz` the least."""
    throttled: dict[str, float] = {}
    """Reason for a lower clock (`thermal`, `power brake`, `power cap`) to its share of samples."""


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One host while the fit ran."""

    rank: int
    """Its first rank."""
    host: str
    cpus: int | None
    samples: int
    span_s: float
    sampler_cpus: float | None
    """CPUs that the sampling itself took."""
    means: dict[str, float]
    """Of the host's columns (`core.artifacts.machine` says what they are)."""
    worst: dict[str, float]
    """The largest of them; of `memory_free` the least."""
    devices: tuple[DeviceFacts, ...] = ()
    reasons: dict[str, str] = {}


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All hosts that were sampled."""

    hosts: tuple[HostFacts, ...]
    causes: tuple[CauseFacts, ...] = ()
    """Those that came up at all, the one that lost most first."""
