"""Measured times of a step against their floors, by the records and by a trace of the same fit.

A trace has times and no sizes, an audit has sizes and no device times: they are joined by the name
of the operator, both per step.
"""

from collections.abc import Mapping, Sequence

import msgspec

from trainperf.analysis.roofline.roofline import (
    NEAR_ROOF,
    Bound,
    OperatorFloor,
    PhaseFloor,
    Roofline,
)
from trainperf.core.artifacts.audit import Part, StepAudit, short_name
from trainperf.traces.capture_files import CaptureReport


MOST_OPERATORS = 12
"""Operators listed."""

SAME_CALLS = 0.1
"""Relative difference in calls per step up to which trace and audit are of the same work."""

_COPY, _CONVOLUTION = "copy_", "convolution"
_FAMILIES = {
    "_to_copy": _COPY,
    "clone": _COPY,
    "contiguous": _COPY,
    "mkldnn_convolution": _CONVOLUTION,
    "cudnn_convolution": _CONVOLUTION,
    "miopen_convolution": _CONVOLUTION,
    "_convolution": _CONVOLUTION,
}
"""Operators that an audit lists under one name and a trace under another."""


class PhaseSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of the step, or the whole step."""

    name: str
    """`step`, `forward`, `backward` or `optimizer`."""
    floor_s: float
    """Speed of light: no implementation of the same operators on this chip is faster."""
    fused_floor_s: float
    """The same when each chain of elementwise operators is one kernel."""
    measured_s: float | None
    """Mean of steady steps on the host clock; `None` for a phase on an asynchronous device,
    where the host's time is not the work's."""

    @property
    def over(self) -> float | None:
        """How many times the floor was measured: 1 is perfect."""
        if self.measured_s is None or self.floor_s <= 0:
            return None
        return self.measured_s / self.floor_s


class OperatorSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one operator from one place in the code, in the audited step."""

    name: str
    part: Part
    module: str | None
    line: str | None
    """`file:line`, where it is known."""
    precision: str
    calls: int
    bound: Bound
    floor_s: float
    measured_s: float | None
    """Run time under the audit, on a CPU; `None` elsewhere, where only launches are timed."""
    share: float
    """Of the measured time of all operators; of their floors and launches where none is timed."""
    near_roof: bool | None
    """Whether it runs at 75 % of its floor's speed or more: leave it, or fuse it."""


class SpeedOfLight(msgspec.Struct, frozen=True, kw_only=True):
    """The audited step against its chip."""

    chip: str
    source: str
    """Where the chip's limits are from."""
    audited_step: int | None
    phases: tuple[PhaseSpeed, ...]
    operators: tuple[OperatorSpeed, ...]
    """Those that take longest, first."""
    model_flops: int
    hardware_flops: int
    mfu: float | None
    """Model FLOPs of a mean steady step, scaled from the audit, over the chip's dense peak."""
    hfu: float | None
    unknown_precisions: tuple[str, ...] = ()
    """Precisions of contractions without a known peak: their arithmetic is in no floor."""


def speed_of_light(
    light: Roofline,
    audit: StepAudit,
    phases_s: Mapping[str, float],
    typical: Roofline | None = None,
) -> SpeedOfLight:
    """Compare measured times with the floors.

    Args:
        light: The floors of the audited step.
        audit: The step they are of.
        phases_s: Mean host time of each phase of a steady step, by label; empty without any.
        typical: The floors of a step that is as large as the steady ones.
    """
    usual = light if typical is None else typical
    on_host = audit.timed
    step_s = sum(phases_s.values()) or None
    floors: list[tuple[str, PhaseFloor]] = [("step", usual.step), *usual.phases.items()]
    measured_s = {"step": step_s, **(phases_s if on_host else {})}
    phases = (
        PhaseSpeed(
            name=name,
            floor_s=floor.floor_s,
            fused_floor_s=floor.fused_floor_s,
            measured_s=measured_s.get(name),
        )
        for name, floor in floors
    )
    return SpeedOfLight(
        chip=light.chip.name,
        source=light.chip.source,
        audited_step=audit.step,
        phases=tuple(phases),
        operators=_operators(light, timed=on_host),
        model_flops=light.mfu_flops,
        hardware_flops=light.hfu_flops,
        mfu=None if step_s is None else usual.mfu(step_s),
        hfu=None if step_s is None else usual.hfu(step_s),
        unknown_precisions=light.unknown_precisions,
    )


def _operators(light: Roofline, *, timed: bool) -> tuple[OperatorSpeed, ...]:
    own = [floor for floor in light.operators if floor.use.place == "device"]
    total = sum(_weight_s(floor, timed=timed) for floor in own)
    if total <= 0:
        return ()
    own.sort(key=lambda floor: -_weight_s(floor, timed=timed))
    return tuple(
        OperatorSpeed(
            name=floor.use.name,
            part=floor.use.part,
            module=floor.use.module,
            line=floor.use.line,
            precision=floor.use.precision,
            calls=floor.use.calls,
            bound=floor.bound,
            floor_s=floor.floor_s,
            measured_s=floor.use.host_s if timed else None,
            share=_weight_s(floor, timed=timed) / total,
            near_roof=floor.near_roof(floor.use.host_s) if timed else None,
        )
        for floor in own[:MOST_OPERATORS]
    )


def _weight_s(floor: OperatorFloor, *, timed: bool) -> float:
    return floor.use.host_s if timed else max(floor.floor_s, floor.launch_s)


class AchievedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's time in a trace, against its floor in the audit; per step."""

    name: str
    calls: float
    """In the trace."""
    measured_s: float
    """Self time on the device; on the CPU where there is no device."""
    floor_s: float
    """In the audit."""
    share_of_roof: float | None
    """Floor over measured time; `None` where the calls differ."""

    @property
    def near_roof(self) -> bool | None:
        """Whether a better kernel would gain little: leave it alone, or fuse it away."""
        return None if self.share_of_roof is None else self.share_of_roof >= NEAR_ROOF


def achieved(light: Roofline, captures: Sequence[CaptureReport]) -> tuple[AchievedOperator, ...]:
    """The operators in both the trace and the audit, the longest first; empty without a trace."""
    floors: dict[str, list[OperatorFloor]] = {}
    for floor in light.operators:
        if floor.use.place == "device":
            floors.setdefault(family(floor.use.name), []).append(floor)
    joined = [
        _achieved(operator, floors[operator.name])
        for operator in traced_operators(captures)
        if operator.name in floors
    ]
    return tuple(sorted(joined, key=lambda operator: -operator.measured_s))


class TracedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator family in a trace; means per step."""

    name: str
    """See `family`."""
    calls: float
    measured_s: float


def traced_operators(captures: Sequence[CaptureReport]) -> tuple[TracedOperator, ...]:
    """Those with most time in the latest trace of the lowest rank, families together."""
    rank = next((report.ranks[0] for report in reversed(captures) if report.ranks), None)
    if rank is None or not rank.totals.steps:
        return ()
    steps, on_device = rank.totals.steps, rank.device_worked
    families: dict[str, TracedOperator] = {}
    for operator in rank.top_operators:
        name = family(operator.name)
        before = families.get(name) or TracedOperator(name=name, calls=0.0, measured_s=0.0)
        families[name] = TracedOperator(
            name=name,
            calls=before.calls + operator.calls / steps,
            measured_s=before.measured_s
            + ((operator.self_device_s or 0.0) if on_device else operator.self_cpu_s) / steps,
        )
    return tuple(families.values())


def family(name: str) -> str:
    """Common name of the same work in traces and audits, e.g. `addmm`, `copy_`.

    The audit says `aten.addmm.default`, a trace says `aten::addmm`.
    """
    plain = short_name(name)
    return _FAMILIES.get(plain, plain)


def _achieved(traced: TracedOperator, floors: Sequence[OperatorFloor]) -> AchievedOperator:
    calls = sum(floor.use.calls for floor in floors)
    floor_s = sum(floor.floor_s for floor in floors)
    same_work = abs(traced.calls - calls) <= SAME_CALLS * calls
    comparable = same_work and floor_s > 0 and traced.measured_s > 0
    return AchievedOperator(
        name=traced.name,
        calls=traced.calls,
        measured_s=traced.measured_s,
        floor_s=floor_s,
        share_of_roof=floor_s / traced.measured_s if comparable else None,
    )
