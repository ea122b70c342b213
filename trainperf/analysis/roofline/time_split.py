"""Split of a step's time into compute, memory, launch, transfer, synchronisation and the rest.

`docs/concepts/speed-of-light.md` relates these dimensions to the phases of the step.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from trainperf.analysis.roofline.roofline import OperatorFloor, Roofline
from trainperf.core.artifacts.audit import short_name
from trainperf.core.formatting.units import share


Basis = Literal["phases", "audit", "trace", "trace and audit"]

FIVE = ("compute", "memory", "launch", "transfer", "synchronisation")
MODELLED = FIVE[:3]
"""Dimensions into which an audit or a trace splits the work of operators."""

NAMES = (*FIVE, "undivided", "other")

WORK = ("forward", "backward", "optimizer")
"""Phases in which operators run."""

_LEADING = 3
_BETWEEN = "between operators"


class Dimensions(msgspec.Struct, frozen=True, kw_only=True):
    """Exclusive shares of a step; those that are not `None` sum to one."""

    compute: float | None
    memory: float | None
    launch: float | None
    transfer: float | None
    """`None` where the copy of the batch to the device was not measured: it is in `other` then."""
    synchronisation: float
    undivided: float | None
    """The part of the first three that neither an audit nor a trace splits."""
    other: float
    """Data wait, callbacks, the loop, and everything else that is not the work of operators."""
    basis: Basis
    """Source of the split: the phases alone, or also an audited step or a trace."""
    dominant: str
    """The largest of the five, or `undivided`; `other` is none of them."""
    evidence: tuple[str, ...] = ()
    """Evidence for the dominant one, in words."""

    @property
    def shares(self) -> dict[str, float]:
        """The measured shares by name, in the order of the documentation."""
        every = {name: getattr(self, name) for name in NAMES}
        return {name: value for name, value in every.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShares:
    """Device activity in a trace, as shares of the time in which the device had or could have work.

    Computing, the other work and the idle time sum to one.
    """

    steps: str
    """Which steps were traced, in words."""
    compute: float
    comm_exposed: float
    """Communication during which no compute kernel ran."""
    copies_exposed: float
    """Copies and fills during which no compute kernel ran: the rest of the device's work."""
    idle_host_bound: float
    idle_sync: float
    idle_other: float
    """Data wait included."""
    kernels: float | None = None
    """Per step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """What a run recorded about its step."""

    phases_s: Mapping[str, float]
    """Label of each measured phase to its mean host time in a step; they sum to the mean step."""
    tail_s: float = 0.0
    """The mean all-reduce tail of a step."""
    loop_wait_s: float = 0.0
    """Mean wait for other ranks between two steps; on an asynchronous device also for that."""
    skews_s: Mapping[str, float] = field(default_factory=dict)
    """Label of each other phase in which ranks meet to what they wait there for the last one."""
    ahead: bool = False
    """Whether the host runs ahead of an asynchronous device."""
    light: Roofline | None = None
    """The audited step against its chip."""
    timed: bool = False
    """Whether the audit's host times are the operators' run times, as they are on a CPU."""
    trace: DeviceShares | None = None

    @property
    def step_s(self) -> float:
        """The mean step."""
        return sum(self.phases_s.values())

    @property
    def waits_s(self) -> dict[str, float]:
        """Phase to the wait for other ranks in it, on a host; never more than the phase."""
        waits_s = {**self.skews_s, "backward": self.tail_s, "loop": self.loop_wait_s}
        if not self.tail_s:
            waits_s["backward"] = self.skews_s.get("backward", 0.0)
        return {
            phase: min(wait_s, self.phases_s.get(phase, 0.0)) for phase, wait_s in waits_s.items()
        }

    @property
    def synchronisation_s(self) -> float:
        """The wait for other ranks in a step.

        On a device it is the device's time, and the same delay wherever it is seen: the largest
        counts, as far as the step has room for it beside what is no work.  What the host waits
        between two steps it mostly waits for the device's work: none of it counts.
        """
        if not self.ahead:
            return sum(self.waits_s.values())
        return min(max([self.tail_s, *self.skews_s.values()]), self._occupied_s)

    @property
    def work_s(self) -> float:
        """Forward, backward and optimizer without the wait for other ranks.

        With the host's wait for its device between two steps: the device works then.
        """
        if self.ahead:
            return self._occupied_s - self.synchronisation_s
        waits_s = self.waits_s
        return sum(self.phases_s.get(phase, 0.0) - waits_s.get(phase, 0.0) for phase in WORK)

    @property
    def _occupied_s(self) -> float:
        """Time in which a device has work, or waits for other ranks'."""
        drained_s = min(self.loop_wait_s, self.phases_s.get("loop", 0.0))
        return drained_s + sum(self.phases_s.get(phase, 0.0) for phase in WORK)


def dimensions(facts: StepFacts) -> Dimensions | None:
    """The shares; `None` without steps, or where no phase of the work was measured."""
    if facts.trace is not None:
        return _from_trace(facts.trace, facts)
    step_s = facts.step_s
    if step_s <= 0 or not any(phase in facts.phases_s for phase in WORK):
        return None
    weights = _weights(facts)
    moving_s = facts.phases_s.get("h2d")
    return _named(
        _split(facts.work_s / step_s, weights),
        transfer=None if moving_s is None else moving_s / step_s,
        synchronisation=facts.synchronisation_s / step_s,
        facts=facts,
        basis="phases" if weights is None else "audit",
    )


def _from_trace(trace: DeviceShares, facts: StepFacts) -> Dimensions:
    """The trace measures launching; an audit splits the kernels' time, by their floors."""
    weights = _weights(facts)
    kernels = None if weights is None else {**weights, "launch": 0.0}
    split = {**_split(trace.compute, kernels), "launch": trace.idle_host_bound}
    return _named(
        split,
        transfer=trace.copies_exposed,
        synchronisation=trace.comm_exposed + trace.idle_sync,
        facts=facts,
        basis="trace" if split["undivided"] is not None else "trace and audit",
    )


def _named(
    split: Mapping[str, float | None],
    *,
    transfer: float | None,
    synchronisation: float,
    facts: StepFacts,
    basis: Basis,
) -> Dimensions:
    """What is left over is `other`; rounding must not make it negative."""
    shares = {**split, "transfer": transfer, "synchronisation": synchronisation}
    measured = {name: value for name, value in shares.items() if value is not None}
    dominant = max(measured, key=measured.__getitem__)
    return Dimensions(
        compute=shares["compute"],
        memory=shares["memory"],
        launch=shares["launch"],
        transfer=transfer,
        synchronisation=synchronisation,
        undivided=shares["undivided"],
        other=max(0.0, 1.0 - sum(measured.values())),
        basis=basis,
        dominant=dominant,
        evidence=_evidence(dominant, facts),
    )


def _split(work: float, weights: Mapping[str, float] | None) -> dict[str, float | None]:
    """The work of operators in proportion to *weights*; undivided without them."""
    total = sum(weights.values()) if weights is not None else 0.0
    if weights is None or total <= 0:
        return {**dict.fromkeys(MODELLED), "undivided": work}
    return {**{name: work * weights[name] / total for name in MODELLED}, "undivided": None}


def _weights(facts: StepFacts) -> dict[str, float] | None:
    """Seconds of the audited operators by what they are spent on; `None` without operators."""
    if facts.light is None:
        return None
    spent = dict.fromkeys(MODELLED, 0.0)
    for floor in _own(facts.light.operators):
        for name, seconds in _spent(floor, facts.light, timed=facts.timed).items():
            spent[name] += seconds
    if sum(spent.values()) <= 0:
        return None
    spent["launch"] += _between_s(facts)
    return spent


def _between_s(facts: StepFacts) -> float:
    """Host time of the phases in which no operator ran: Python, autograd and launching."""
    if facts.light is None or not facts.timed:
        return 0.0
    ran_s = sum(floor.use.host_s for floor in _own(facts.light.operators))
    return max(0.0, facts.work_s - ran_s) if ran_s > 0 else 0.0


def _spent(floor: OperatorFloor, light: Roofline, *, timed: bool) -> dict[str, float]:
    """An operator's time: its launches, and the rest by what bounds it.

    Traffic counts here whether memory or a cache serves it: the operator waits for either.
    """
    moving_s = floor.use.moved_bytes / light.chip.memory_bytes_per_s
    bound = "compute" if (floor.compute_s or 0.0) >= moving_s else "memory"
    if timed and floor.use.host_s > 0:
        launch_s = min(floor.launch_s, floor.use.host_s)
        return {"launch": launch_s, bound: floor.use.host_s - launch_s}
    # Launches hide behind the work of a device that is behind the host, and only there.
    if floor.launch_s > floor.floor_s:
        return {"launch": floor.launch_s}
    return {bound: floor.floor_s}


def _own(operators: Iterable[OperatorFloor]) -> list[OperatorFloor]:
    return [floor for floor in operators if floor.use.place == "device"]


def _evidence(dominant: str, facts: StepFacts) -> tuple[str, ...]:
    lines = []
    if facts.trace is not None:
        kernels = facts.trace.kernels
        many = "" if kernels is None else f", {kernels:,.0f} kernels per step"
        lines.append(f"trace of {facts.trace.steps}{many}")
    if dominant == "undivided":
        lines.append("no step was audited")
    elif facts.light is not None and dominant in MODELLED:
        lines += _leading(dominant, facts, facts.light)
    return tuple(lines)


def _leading(dominant: str, facts: StepFacts, light: Roofline) -> list[str]:
    """The operators that weigh most in a dimension, each with its share of it."""
    weights = {_BETWEEN: _between_s(facts)} if dominant == "launch" else {}
    for floor in _own(light.operators):
        place = floor.use.line or floor.use.module
        name = f"{short_name(floor.use.name)}{f' ({place})' if place else ''}"
        spent = _spent(floor, light, timed=facts.timed)
        weights[name] = weights.get(name, 0.0) + spent.get(dominant, 0.0)
    total = sum(weights.values())
    first = sorted(weights.items(), key=lambda item: -item[1])[:_LEADING]
    return [f"{name} {share(spent / total)} of it" for name, spent in first if spent > 0]
