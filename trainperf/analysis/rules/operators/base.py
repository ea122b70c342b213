"""Audited operators as shares of a steady step: shared by the rules of `operators`.

One step was audited and many are timed.  On a CPU the audit has timed every operator, and the
phases of the steady steps say how long that takes when nobody looks on.  On another device the
audit sees launches only: a trace has the times, and without one they are modelled from floors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from trainperf.analysis.roofline.roofline import LAUNCH_S, OperatorFloor, Roofline
from trainperf.analysis.roofline.speed_of_light import family, traced_operators
from trainperf.analysis.rules.base import Evidence, steady_step_s, warm_bound
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.audit import OperatorUse, Part, StepAudit
from trainperf.core.findings import REFILL_BYTES, Costs, Finding, costs
from trainperf.core.formatting.units import duration, plural, share
from trainperf.core.readings import (
    FLOPS_PER_S,
    PHASE_OPTIMIZER_S,
    PHASE_OTHER_S,
    phase_reading,
)


Basis = Literal["measured", "traced", "modelled"]

PASSES: tuple[Part, ...] = ("forward", "backward", "recompute")
"""Parts of the step that are no update."""

_PHASES: dict[Part, str] = {
    "forward": "forward",
    "backward": "backward",
    "recompute": "backward",
    "optimizer": "optimizer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One row of the audit, and what it takes of a mean steady step."""

    floor: OperatorFloor
    time_s: float
    computed_s: float = 0.0
    """The part of it that is the operator's own on a CPU: without Python around it, and without
    what others on the machine add."""

    @property
    def use(self) -> OperatorUse:
        """What was called."""
        return self.floor.use

    @property
    def excess_s(self) -> float:
        """Beyond its floor."""
        return max(0.0, self.time_s - self.floor.floor_s)


class AuditedFields(Costs):
    """What a finding about audited operators costs, with its evidence and its place."""

    evidence: tuple[str, ...]
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedStep:
    """The audited step, with the times of the steady ones."""

    audit: StepAudit
    light: Roofline
    step_s: float
    """Mean of the steady steps."""
    work_s: float
    """The part of it in forward, backward and optimizer."""
    passes_s: float
    """The part of it in forward and backward, and in Python between the phases."""
    basis: Basis
    operators: tuple[Timed, ...]
    """Of the device."""
    capture: str
    """How to get a trace, in this kind of loop."""
    smallest_s: float
    """A call that computes next to nothing, under the audit: every step has some."""

    @property
    def around_passes_s(self) -> float:
        """Time in which forward and backward run, at most.

        A device works on while its host is elsewhere: there it is the step.
        """
        return self.passes_s if self.basis == "measured" else self.step_s

    def fraction(self, saved_s: float) -> float:
        """A share of the step, at most all of it."""
        return min(max(saved_s, 0.0) / self.step_s, 1.0)

    def share(self, rows: Iterable[Timed]) -> str:
        """Of the step that some rows take, in words."""
        return share(total_s(rows) / self.step_s)

    def spent(self, rows: Iterable[Timed]) -> str:
        """Time of some rows, e.g. `1.2 ms of 9.8 ms per step`."""
        return f"{duration(total_s(rows))} of {duration(self.step_s)} per step"

    def costs(self, lost: float) -> Costs:
        """As `findings.costs`, no surer than the times are; no bound where they are a model."""
        if self.basis == "modelled":
            return {**costs(lost, confidence="low"), "gain_upper_bound": None}
        return costs(lost, confidence="medium")

    def fields(
        self,
        rows: Sequence[Timed],
        lost: float,
        *facts: str,
        lines: int = 3,
        then: str = "",
        at: Sequence[Timed] = (),
    ) -> AuditedFields:
        """`Finding(**step.fields(…), …)`: what the rows cost, their evidence and their place.

        Args:
            rows: What the finding is about.
            lost: Share of the step that would be saved.
            facts: First lines of the evidence.
            lines: How many of the rows' source lines follow.
            then: What is added after them.
            at: Those of the rows whose place is shown; by default the heaviest.
        """
        evidence = (*facts, *self.lines(rows, lines), then, self.stands_on())
        return AuditedFields(
            **self.costs(lost), evidence=tuple(filter(None, evidence)), where=place_of(at or rows)
        )

    def with_aftermath_s(self, rows: Sequence[Timed]) -> float:
        """Time of rows, and of what their results cost other operators at most.

        Memory for a result has to be got and given back, and it pushes others out of the cache:
        no more than moving it twice through memory.
        """
        written = sum(row.use.written_bytes for row in rows)
        return total_s(rows) + 2 * written / self.light.chip.memory_bytes_per_s

    def refilled_bound(self, finding: Finding, rows: Sequence[Timed], summary: Summary) -> Finding:
        """The finding of rows that move memory, bounded by the caches that are warm without them.

        What they write on a CPU pushes as much out, which others then fetch at a core's own rate.
        """
        if self.basis != "measured":
            return finding
        written = sum(row.use.written_bytes for row in rows)
        return warm_bound(finding, summary, refills=written / REFILL_BYTES)

    def stands_on(self) -> str:
        """Where the times are from."""
        step = "" if self.audit.step is None else f" {self.audit.step}"
        if self.basis == "modelled":
            return f"modelled from the floors of step{step}; {self.capture} would measure it"
        if self.basis == "traced":
            return f"device times from the trace, operators from step{step}"
        return f"operators timed one by one in step{step}"

    def lines(self, rows: Iterable[Timed], most: int = 3) -> tuple[str, ...]:
        """The lines that weigh most among some rows, with their time and their operators."""
        groups: dict[str, list[Timed]] = {}
        for row in rows:
            groups.setdefault(row.use.line or row.use.module or "", []).append(row)
        ranked = sorted(groups.items(), key=lambda item: -total_s(item[1]))
        return tuple(
            f"{place or 'an unknown place'}: {duration(total_s(mine))} per step in "
            f"{plural(sum(row.use.calls for row in mine), 'call')} of {_names(mine)}"
            for place, mine in ranked[:most]
        )


def audited(evidence: Evidence) -> AuditedStep | None:
    """What operator rules stand on.

    `None` without an audit, its chip or enough steady steps, and where the audited step is not
    like the others.
    """
    summary, audit, light = evidence.summary, evidence.documents.audit, evidence.typical
    step_s = steady_step_s(summary)
    if audit is None or light is None or not step_s or summary.value(FLOPS_PER_S) is None:
        return None
    own = [floor for floor in light.operators if floor.use.place == "device"]
    work_s = _work_s(summary)
    basis: Basis = "measured"
    if audit.device == "cpu":
        operators = _on_host(own, summary, light)
    else:
        operators = _on_device(own, work_s, evidence)
        basis = "traced" if traced_operators(evidence.captures) else "modelled"
    return AuditedStep(
        audit=audit,
        light=light,
        step_s=step_s,
        work_s=work_s,
        passes_s=_passes_s(summary, operators),
        basis=basis,
        capture=summary.run.loop.capture,
        # What logging calls has a rule of its own.
        operators=tuple(row for row in operators if not row.use.logs),
        smallest_s=_smallest_s(own, launch_s(light)),
    )


def total_s(rows: Iterable[Timed]) -> float:
    """Time of some rows together."""
    return sum(row.time_s for row in rows)


def computed_s(rows: Iterable[Timed], step: AuditedStep) -> float:
    """Time of some rows without the Python around them, which a device does not wait for."""
    if step.basis != "measured":
        return total_s(rows)
    return sum(row.computed_s for row in rows)


def place_of(rows: Sequence[Timed]) -> str:
    """`file:line` of the rows that weigh most; empty where no line is known."""
    weights: dict[str, float] = {}
    for row in rows:
        if row.use.line is not None:
            weights[row.use.line] = weights.get(row.use.line, 0.0) + row.time_s
    return max(weights, key=weights.__getitem__, default="")


def launch_s(light: Roofline) -> float:
    """Host time of one launch."""
    return LAUNCH_S if light.chip.launch_s is None else light.chip.launch_s


def is_large(row: Timed, step: AuditedStep) -> bool:
    """Whether its work takes clearly longer than its launch."""
    if step.basis != "measured":
        return row.floor.floor_s / row.use.calls >= launch_s(step.light)
    return _each_s(row.use) >= 4 * step.smallest_s


def _each_s(use: OperatorUse) -> float:
    return _busy_s(use) / use.calls


def _smallest_s(own: Iterable[OperatorFloor], usual_s: float) -> float:
    """The shortest call: a launch on a machine as busy as it was, and what the audit adds."""
    shortest_s = min((_each_s(row.use) for row in own), default=usual_s)
    return min(max(shortest_s, usual_s), 6 * usual_s)


def _names(rows: Iterable[Timed]) -> str:
    ranked = sorted(rows, key=lambda row: -row.time_s)
    names = list(dict.fromkeys(row.use.short_name for row in ranked))
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")


def _work_s(summary: Summary) -> float:
    return sum(summary.value(phase_reading(name)) or 0.0 for name in set(_PHASES.values()))


def _passes_s(summary: Summary, operators: Iterable[Timed]) -> float:
    around = ("forward", "backward", "other")
    around_s = sum(summary.value(phase_reading(name)) or 0.0 for name in around)
    if summary.value(PHASE_OPTIMIZER_S):
        return around_s
    # In a loop without brackets the update is in there too.
    update_s = total_s(row for row in operators if row.use.part == "optimizer")
    return max(0.0, around_s - update_s)


# -- a CPU: the audit has timed the operators -------------------------------------------------


def _on_host(own: Sequence[OperatorFloor], summary: Summary, light: Roofline) -> list[Timed]:
    """Each row's share of its phase, as far as the phases are told apart."""
    parts = {part: summary.value(phase_reading(name)) or 0.0 for part, name in _PHASES.items()}
    if not _told_apart(own, parts):
        whole_s = _work_s(summary) + (summary.value(PHASE_OTHER_S) or 0.0)
        return _shared_out(own, whole_s, light)
    backward = [row for row in own if row.use.part in ("backward", "recompute")]
    timed = _shared_out(backward, parts["backward"], light)
    for part in ("forward", "optimizer"):
        mine = [row for row in own if row.use.part == part]
        timed += _shared_out(mine, parts[part], light)
    return timed


def _told_apart(own: Sequence[OperatorFloor], parts: dict[Part, float]) -> bool:
    """Whether each phase is long enough for the operators that ran in it.

    A plain loop without brackets, or a `backward()` that nobody announced, has all in one phase.
    """
    whole_s = sum(_busy_s(row.use) for row in own)
    busy_s = dict.fromkeys(_PHASES.values(), 0.0)
    for row in own:
        busy_s[_PHASES[row.use.part]] += _busy_s(row.use)
    return all(
        parts[part] >= busy_s[name] / 4
        for part, name in _PHASES.items()
        if busy_s[name] > 0.05 * whole_s
    )


def _shared_out(floors: Sequence[OperatorFloor], phase_s: float, light: Roofline) -> list[Timed]:
    """In proportion to what they took under the audit, and the rest by calls."""
    seen_s, calls = sum(_busy_s(row.use) for row in floors), sum(row.use.calls for row in floors)
    if seen_s <= 0 or not calls:
        return [Timed(floor=row, time_s=0.0) for row in floors]
    # Others slow a phase down by a factor of two at most; what is beyond it is Python's.
    factor = min(phase_s / seen_s, 2.0)
    # Python around a call takes some launches' time; a phase that sleeps is nobody's work.
    call_s = min((phase_s - factor * seen_s) / calls, 10 * launch_s(light))
    return [
        Timed(
            floor=row,
            time_s=factor * _busy_s(row.use) + call_s * row.use.calls,
            computed_s=min(factor, 1.0) * _busy_s(row.use),
        )
        for row in floors
    ]


def _busy_s(use: OperatorUse) -> float:
    """What it computed; an audit of an earlier release knows only what it took."""
    return use.busy_s or use.host_s


# -- another device: a trace has timed the operators, or nobody has -----------------------------


def _on_device(own: Sequence[OperatorFloor], work_s: float, evidence: Evidence) -> list[Timed]:
    weight_s = sum(map(_least_s, own))
    if weight_s <= 0:
        return []
    modelled = [Timed(floor=row, time_s=work_s * _least_s(row) / weight_s) for row in own]
    traced = {row.name: row.measured_s for row in traced_operators(evidence.captures)}
    if not traced:
        return modelled
    # What is not among the longest operators of a trace takes less than each of them.
    shortest_s = min(traced.values())
    families: dict[str, float] = {}
    for row in modelled:
        name = family(row.use.name)
        families[name] = families.get(name, 0.0) + row.time_s
    return [
        Timed(floor=row.floor, time_s=_scaled(row, families, traced, shortest_s))
        for row in modelled
    ]


def _scaled(
    row: Timed, families: dict[str, float], traced: dict[str, float], shortest_s: float
) -> float:
    name = family(row.use.name)
    share = row.time_s / families[name] if families[name] else 0.0
    return share * traced.get(name, min(families[name], shortest_s))


def _least_s(floor: OperatorFloor) -> float:
    return max(floor.floor_s, floor.launch_s)
