"""How far is the step from what its chip allows?  Measured times beside their floors."""

from collections.abc import Mapping

import msgspec

from trainperf.analysis.roofline.roofline import FINE, Bound, OperatorFloor, Roofline
from trainperf.core.artifacts.audit import Part, StepAudit


MOST_OPERATORS = 12


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
        known = self.measured_s is not None and self.floor_s > 0
        return self.measured_s / self.floor_s if known and self.measured_s is not None else None


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
    """Whether it runs at three quarters of its floor's speed or more: leave it, or fuse it."""


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
    """Model FLOPs of a mean steady step, told from the audited one, over the chip's dense peak."""
    hfu: float | None
    unknown_precisions: tuple[str, ...] = ()
    """Precisions of contractions without a known peak: their arithmetic is in no floor."""


def speed_of_light(
    light: Roofline,
    audit: StepAudit,
    phases_s: Mapping[str, float],
    typical: Roofline | None = None,
) -> SpeedOfLight:
    """Put measured times beside the floors.

    Args:
        light: The floors of the audited step.
        audit: The step they are of.
        phases_s: Mean host time of each phase of a steady step, by label; empty without any.
        typical: The floors of a step that is as large as the steady ones.
    """
    usual = light if typical is None else typical
    on_host = audit.device == "cpu"
    step_s = sum(phases_s.values()) or None
    phases = [
        PhaseSpeed(
            name="step",
            floor_s=usual.step.floor_s,
            fused_floor_s=usual.step.fused_floor_s,
            measured_s=step_s,
        )
    ]
    phases += [
        PhaseSpeed(
            name=name,
            floor_s=floor.floor_s,
            fused_floor_s=floor.fused_floor_s,
            measured_s=phases_s.get(name) if on_host else None,
        )
        for name, floor in usual.phases.items()
    ]
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
            near_roof=_near_roof(floor) if timed else None,
        )
        for floor in own[:MOST_OPERATORS]
    )


def _weight_s(floor: OperatorFloor, *, timed: bool) -> float:
    return floor.use.host_s if timed else max(floor.floor_s, floor.launch_s)


def _near_roof(floor: OperatorFloor) -> bool | None:
    share = floor.share_of_roof(floor.use.host_s)
    return None if share is None else share >= FINE
