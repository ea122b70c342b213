"""Account of a step: the mean steady step of a training as resources, in seconds.

What a run recorded, what a capture shows and what a log holds become the same account, so that the
same detectors judge all three.  The training thread's seconds (`loop_s`) tile the step; operators
divide those of them in which the model computes; a device, a loader's workers, other threads and
other ranks have seconds of their own, which may pass at the same time.

A detector claims seconds of an account.  `StepAccount.without` is the account that the detectors
after it see: each second has one owner.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.artifacts.lines import BEFORE_FIT
from trainperf.core.choice import first_that_holds
from trainperf.core.findings import LIMITS, Scope
from trainperf.core.groups import summed


Basis = Literal["audited", "traced", "modelled"]
"""Source of the seconds of regions: one audited step, a trace, or the floors of operators."""

WORK = ("forward", "backward", "optimizer")
"""Slots of the loop in which a model computes."""

OWN = "trainperf"
"""Slot of our own overhead."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Region:
    """A part of the computing that is one piece of code: a row of the audit, in a mean step."""

    use: OperatorUse
    slot: str
    """Where in the loop it runs: one of `WORK`, or `other`."""
    run_s: float
    """Inside its operator's calls."""
    python_s: float
    """On the host before these calls: Python, a framework, dispatch.  0 on a device."""
    ideal_s: float
    """The roofline of the same FLOPs and bytes: no implementation is faster on this chip."""
    fused_s: float
    """The same where each chain of elementwise operators is one kernel."""
    compute_s: float
    """The part of the roofline that is arithmetic."""
    explained_s: float = 0.0
    """What the audit, and samples of all steps, surely show of it: a bound allows for the rest."""

    @property
    def seconds(self) -> float:
        """All of it in a step."""
        return self.run_s + self.python_s

    def times(self, factor: float) -> "Region":
        """The same with so many times its work."""
        if factor == 1.0:
            return self
        return replace(
            self,
            run_s=factor * self.run_s,
            python_s=factor * self.python_s,
            ideal_s=factor * self.ideal_s,
            fused_s=factor * self.fused_s,
            compute_s=factor * self.compute_s,
            explained_s=factor * self.explained_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderAccount:
    """What makes the batches of a step."""

    workers: int | None
    """Processes; 0 is the training thread itself, `None` is not known."""
    making_s: float
    """What the batches of a step take one process to make."""
    transport_s: float
    """What it costs the training process to take them over from workers."""
    batches: int = 1
    """Micro-batches of a step."""
    computes_s: float = 0.0
    """CPU seconds of its workers, the least that making takes: they may be idle in between.  0 is
    not known."""
    idle: int = 0
    """Workers that make nothing: a further one would not either."""
    asleep: float = 0.0
    """Share of the making for which its process neither ran nor was ready to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAccount:
    """A device that computes beside the host; `None` is not measured.

    Seconds of a step in which the device did nothing, by what it waited for.  Of a run without a
    capture only some are known.
    """

    data_s: float | None = None
    """For the loader."""
    host_s: float | None = None
    """For the next launch."""
    value_s: float | None = None
    """While the host waited for a value."""
    copies_s: float | None = None
    """Host-to-device copies that no computation hid."""
    communication_s: float | None = None
    """Collectives that no computation hid."""
    busy_s: float | None = None
    host_bound: float | None = None
    """Share of the steps in which it had caught up when forward and backward returned; `None` also
    where it waits for the loader, or for weights that the host updates: it has always caught up
    then."""

    @property
    def host_decides(self) -> bool:
        """Whether a second of the host is a second of the step."""
        return (self.host_bound or 0.0) >= LIMITS.mostly


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """A point of the step at which ranks wait for each other."""

    wait_s: float = 0.0
    """Of the rank that waits longest."""
    transfer_s: float = 0.0
    """Of the rank that waits least: what is no wait for another."""
    late: Mapping[str, float] = field(default_factory=dict)
    """Slot of the loop to the seconds by which a named rank is late because of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAccount:
    """The mean steady step; all seconds are of a step but those of `fit_s` and `pauses_s`."""

    step_s: float
    loop_s: Mapping[str, float]
    """Slot of the training thread to its seconds, on the rank where they are largest."""
    regions: tuple[Region, ...] = ()
    """In the order of their first calls; empty without an audit.  Their seconds are those of the
    host where it decides, else of the device."""
    regions_basis: Basis = "audited"
    unexplained_s: Mapping[str, float] = field(default_factory=dict)
    """Slot to the seconds in which regions may take longer, or less, than they are said to."""
    device: DeviceAccount | None = None
    """`None` where the host itself computes."""
    loader: LoaderAccount | None = None
    threads_s: Mapping[str, float] = field(default_factory=dict)
    """Other thread of this process to its CPU seconds."""
    meetings: Mapping[str, Meeting] = field(default_factory=dict)
    cpus: float | None = None
    """CPUs that a rank may use."""
    model_threads: int = 1
    """That compute; 1 beside a device: the one that launches."""
    others_cpus: float = 0.0
    """CPUs that other processes kept busy most of the time."""
    kernel_s: float = 0.0
    """CPU seconds of the kernel for this process, wherever in the step."""
    fit_s: float = 0.0
    before_s: Mapping[str, float] = field(default_factory=dict)
    """What the process did before the fit to its seconds; empty where nobody saw it."""
    steps_s: float = 0.0
    """Of the fit, in steps of any kind."""
    steps: int = 0
    """Of the fit, of any kind; 0 is not known."""
    pauses_s: Mapping[str, float] = field(default_factory=dict)
    """Kind of pause, or of unusual step, to its seconds of the fit."""
    least: float = LIMITS.notable
    """Share of the step from which on a part of it is worth a word; a trace shows smaller ones."""
    judged: bool = True
    """Whether there are enough steady steps to judge shares of a step by."""

    def whole_s(self, of: Scope) -> float:
        """Seconds of the step, the fit, or the script."""
        script_s = self.fit_s + sum(self.before_s.values())
        return {"step": self.step_s, "fit": self.fit_s, "script": script_s}[of]

    def share(self, seconds: float, of: Scope = "step") -> float:
        """Of the step, the fit or the script, at most all of it; 0 where that takes no time."""
        whole_s = self.whole_s(of)
        return min(max(seconds, 0.0) / whole_s, 1.0) if whole_s else 0.0

    def part_of(self, claim: "Claim") -> float:
        """Share of the step, the fit or the script that a claim removes, at most all of it."""
        return self.share(sum(claim.pauses_s.values()) or claim.removes_s, claim.scope)

    def spent(self, *slots: str) -> float:
        """Seconds of the training thread that nobody has claimed yet, in some slots."""
        return sum(self.loop_s.get(slot, 0.0) for slot in slots)

    @property
    def host_decides(self) -> bool:
        """Whether a second of the host is a second of the step."""
        return self.device is None or self.device.host_decides

    @property
    def computing_s(self) -> float:
        """Seconds in which the model computes: the host's, or those of a device that decides."""
        if self.host_decides or self.device is None:
            return self.spent(*WORK)
        if self.regions:
            return total_s(self.regions)
        return self.device.busy_s or self.spent(*WORK)

    @property
    def steps_share(self) -> float:
        """Share of the fit that a change of the step can make shorter.

        Steps that compile, save or wait for a first batch are longer than what it saves.
        """
        usual_s = self.steps * self.step_s if self.steps else self.steps_s
        return min(self.steps_s, usual_s) / self.fit_s if self.fit_s else 1.0

    def without(self, claim: "Claim") -> "StepAccount":
        """What is left for others when a cause owns what it claims."""
        # By their rows: what earlier claims have made of a region is another object.
        owned = {id(region.use) for region in claim.regions}
        # Work of a device that decides takes nothing from the thread that launches it.
        owns_s = {} if claim.regions and not self.host_decides else claim.owns_s
        before = {id(region.use) for region in claim.before}
        idle_s = {name: getattr(self.device, name, None) or 0.0 for name in claim.device}
        return replace(
            self,
            loop_s=_less(self.loop_s, owns_s),
            pauses_s=_less(self.pauses_s, claim.pauses_s),
            regions=tuple(
                (replace(region, python_s=0.0) if id(region.use) in before else region).times(
                    1.0 - claim.shrinks if region.slot in claim.owns_s else 1.0
                )
                for region in self.regions
                if id(region.use) not in owned
            ),
            threads_s={name: s for name, s in self.threads_s.items() if name not in claim.threads},
            device=self.device and replace(self.device, **_less(idle_s, claim.device)),
        )


def _less(spent_s: Mapping[str, float], claimed_s: Mapping[str, float]) -> dict[str, float]:
    """Seconds by name, without those of a claim."""
    return {name: max(0.0, s - claimed_s.get(name, 0.0)) for name, s in spent_s.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Seconds that a cause owns, and how many of them would be gone without it."""

    owns_s: Mapping[str, float] = field(default_factory=dict)
    """Slot of the loop to seconds of a step."""
    removes_s: float = 0.0
    """Seconds of a step, at most all that it owns: less the ideal of what has to stay."""
    at_most_s: float | None = None
    """The most that these, or the pauses, may be, where they are an estimate; by default they are
    exact."""
    regions: tuple[Region, ...] = ()
    before: tuple[Region, ...] = ()
    """Regions of which it owns what passes before their calls, and not the calls."""
    threads: Collection[str] = ()
    """Other threads that have nothing to do without it."""
    device: Mapping[str, float] = field(default_factory=dict)
    """Wait of the device, by its name in `DeviceAccount`, to seconds of a step."""
    pauses_s: Mapping[str, float] = field(default_factory=dict)
    """Kind of pause to seconds of the fit: then all of it is about the fit."""
    shrinks: float = 0.0
    """Share of every region in these slots that it owns, where all of them do too much."""
    interruptions: float = 1.0
    """How often a step, or the fit, it empties the caches for what comes after."""

    @property
    def scope(self) -> Scope:
        """Whether it is a share of a step, of the fit, or of the script."""
        return first_that_holds(
            ("script", BEFORE_FIT in self.pauses_s), ("fit", self.pauses_s), ("step", True)
        )


def of_slots(account: StepAccount, *slots: str) -> Claim:
    """All that is left in some slots, nothing of which has to stay."""
    owns_s = {slot: account.loop_s.get(slot, 0.0) for slot in slots}
    return Claim(owns_s=owns_s, removes_s=sum(owns_s.values()))


def of_regions(regions: Iterable[Region], *, stays_s: float = 0.0) -> Claim:
    """Regions, less the seconds that their work takes when it is done in the best way."""
    own = tuple(regions)
    return Claim(
        owns_s=summed((region.slot, region.seconds) for region in own),
        removes_s=max(0.0, total_s(own) - stays_s),
        regions=own,
    )


def of_python(regions: Iterable[Region]) -> Claim:
    """What passes before the calls of regions: Python, a framework, waiting."""
    own = tuple(regions)
    owns_s = summed((region.slot, region.python_s) for region in own)
    return Claim(owns_s=owns_s, removes_s=sum(owns_s.values()), before=own)


def total_s(regions: Iterable[Region]) -> float:
    """Of some regions together."""
    return sum(region.seconds for region in regions)
