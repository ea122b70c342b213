"""Measured times of a step against their floors, and the operators of a trace of the same fit.

A trace has times and no sizes, an audit has sizes and no device times: they are joined by the name
of the operator, both per step.
"""

from collections.abc import Mapping, Sequence

import msgspec

from trainperf.analysis.roofline.roofline import OperatorFloor, PhaseFloor, Roofline
from trainperf.core.artifacts.audit import StepAudit, short_name
from trainperf.core.groups import summed
from trainperf.traces.capture_files import CaptureReport
from trainperf.traces.results import RankTrace


MOST_OPERATORS = 12
"""Operators listed."""

_FAMILIES = {
    **dict.fromkeys(("_to_copy", "clone", "contiguous"), "copy_"),
    **dict.fromkeys(
        ("mkldnn_convolution", "cudnn_convolution", "miopen_convolution", "_convolution"),
        "convolution",
    ),
}
"""Operators that an audit lists under one name and a trace under another."""


class OperatorSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one operator from one place in the code, in the audited step."""

    floor: OperatorFloor
    measured_s: float | None
    """Run time under the audit, on a CPU; `None` elsewhere, where only launches are timed."""
    share: float
    """Of the measured time of all operators; of their floors and launches where none is timed."""


class SpeedOfLight(msgspec.Struct, frozen=True, kw_only=True):
    """The audited step against its chip."""

    chip: str
    source: str
    """Where the chip's limits are from."""
    audited_step: int | None
    phases: tuple[PhaseFloor, ...]
    """The step first."""
    operators: tuple[OperatorSpeed, ...]
    """Those that take longest, first."""
    model_flops: int
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
    measured_s = {**phases_s} if audit.timed else {}
    if phases_s:
        measured_s["step"] = sum(phases_s.values())
    return SpeedOfLight(
        chip=light.chip.name,
        source=light.chip.source,
        audited_step=audit.step,
        phases=tuple(
            msgspec.structs.replace(floor, measured_s=measured_s.get(floor.name))
            for floor in (usual.step, *usual.phases.values())
        ),
        operators=_operators(light, timed=audit.timed),
        model_flops=audit.model_flops,
        unknown_precisions=light.unknown_precisions,
    )


def _operators(light: Roofline, *, timed: bool) -> tuple[OperatorSpeed, ...]:
    def taken_s(floor: OperatorFloor) -> float:
        return floor.use.host_s if timed else max(floor.floor_s, floor.launch_s)

    total = sum(map(taken_s, light.own))
    longest = sorted(light.own, key=lambda floor: (-taken_s(floor), -floor.floor_s))
    return tuple(
        OperatorSpeed(
            floor=floor,
            measured_s=floor.use.host_s if timed else None,
            share=taken_s(floor) / total,
        )
        for floor in longest[:MOST_OPERATORS]
        if total > 0
    )


def traced_operators(captures: Sequence[CaptureReport]) -> dict[str, float]:
    """Families of operators to their seconds of a step, in the latest trace of the lowest rank."""
    rank = next((report.ranks[0] for report in reversed(captures) if report.ranks), None)
    spent_s = {} if rank is None else operators_s(rank)
    return summed((family(name), own_s) for name, own_s in spent_s.items())


def operators_s(rank: RankTrace) -> dict[str, float]:
    """Own seconds of each top operator per step: of a device its own time, else that of the CPU."""
    on_device, steps = rank.device_worked, len(rank.steps)
    return summed(
        (each.name, ((each.self_device_s if on_device else each.self_cpu_s) or 0.0) / steps)
        for each in (rank.top_operators if steps else ())
    )


def family(name: str) -> str:
    """Common name of the same work in traces and audits, e.g. `addmm`, `copy_`.

    The audit says `aten.addmm.default`, a trace says `aten::addmm`.
    """
    plain = short_name(name)
    return _FAMILIES.get(plain, plain)
