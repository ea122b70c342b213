"""Speed-of-light floors of a step on a chip, and what bounds each operator.

A floor is a time that no implementation of the same operator on the same chip goes below: its
FLOPs at the peak rate of its precision, or its memory traffic at the peak bandwidth, whichever is
longer.  The sum over the operators is the step's speed of light.  Traffic that fits in the chip's
cache is left out, so that the floor stays below a measured time.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from trainperf.core.artifacts.audit import OperatorUse, Part, StepAudit
from trainperf.core.machine.chips import Chip


Bound = Literal["compute", "memory", "launch", "transfer", "host"]

LAUNCH_S = 5e-6
"""Host time to launch an operator from Python where it was not measured: an order of magnitude."""


def launch_s_of(chip: Chip) -> float:
    """Host seconds of one launch, as measured where it was."""
    return LAUNCH_S if chip.launch_s is None else chip.launch_s


Phase = Literal["forward", "backward", "optimizer"]
PHASE_OF: dict[Part, Phase] = {
    "forward": "forward",
    "backward": "backward",
    "recompute": "backward",
    "optimizer": "optimizer",
}
"""Part of the step to its phase."""


class OperatorFloor(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the audit against the chip; times of all its calls together."""

    use: OperatorUse
    bound: Bound
    """What takes longest: arithmetic, memory, the launches, or the link to the host.

    `host` is work on the CPU while the device is an accelerator; it has no floor.
    """
    compute_s: float | None = None
    """FLOPs at the peak of its precision; `None` when the chip's peak in it is not known."""
    launch_s: float
    """Calls times the time of one launch; no part of the floor, since a graph saves it."""
    floor_s: float = 0.0
    """Work that is not done by the chip is no part of its speed of light."""
    fused_floor_s: float = 0.0
    """The floor when each chain of elementwise operators is one kernel."""


class PhaseFloor(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of the step, or the whole step."""

    name: str
    """`step`, `forward`, `backward` or `optimizer`."""
    floor_s: float
    """Speed of light: no implementation of the same operators on this chip is faster."""
    fused_floor_s: float
    """The same when each chain of elementwise operators is one kernel."""
    measured_s: float | None = None
    """Mean of steady steps on the host clock; `None` for a phase on an asynchronous device,
    where the host's time is not the work's."""

    @property
    def over(self) -> float | None:
        """How many times the floor was measured: 1 is perfect; `None` without either."""
        if self.measured_s is None or self.floor_s <= 0:
            return None
        return self.measured_s / self.floor_s


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """A step against a chip."""

    chip: Chip
    step: PhaseFloor
    """The speed of light of the operators; data wait, transfers and launches are not in it."""
    phases: dict[Phase, PhaseFloor]
    """Recomputation belongs to backward."""
    operators: tuple[OperatorFloor, ...]
    """In the order of the audit, which is that of their first calls."""
    unknown_precisions: tuple[str, ...]
    """Precisions of contractions for which the chip has no peak: their arithmetic is no floor."""

    @property
    def own(self) -> tuple[OperatorFloor, ...]:
        """Operators that the chip itself works on; copies over the link may overlap them."""
        return tuple(floor for floor in self.operators if floor.use.place == "device")


def roofline(audit: StepAudit, chip: Chip) -> Roofline:
    """The floors of an audited step on a chip."""
    floors = [_floor(use, chip) for use in audit.operators]
    return Roofline(
        chip=chip,
        step=_total("step", floors),
        phases={
            phase: _total(phase, (floor for floor in floors if PHASE_OF[floor.use.part] == phase))
            for phase in PHASE_OF.values()
        },
        operators=tuple(floors),
        unknown_precisions=tuple(
            sorted(
                {use.precision for use in audit.operators if use.matmul_flops}
                - chip.flops_per_s.keys()
            )
        ),
    )


def faster(chip: Chip, factor: float) -> Chip:
    """The same chip with every rate that many times higher."""
    return msgspec.structs.replace(
        chip,
        flops_per_s={name: peak * factor for name, peak in chip.flops_per_s.items()},
        memory_bytes_per_s=chip.memory_bytes_per_s * factor,
    )


def _floor(use: OperatorUse, chip: Chip) -> OperatorFloor:
    launch_s = use.calls * launch_s_of(chip)
    if use.place == "host":
        return OperatorFloor(use=use, bound="host", launch_s=launch_s)
    if use.place == "link":
        crossed = max(use.read_bytes, use.written_bytes)
        s = crossed / chip.link_bytes_per_s if chip.link_bytes_per_s else 0.0
        return OperatorFloor(
            use=use, bound="transfer", launch_s=launch_s, floor_s=s, fused_floor_s=s
        )
    peak = chip.flops_per_s.get(use.precision)
    compute_s = None if peak is None else use.flops / peak
    memory_s = use.memory_bytes / chip.memory_bytes_per_s
    floor_s = max(compute_s or 0.0, memory_s)
    bound: Bound = "compute" if (compute_s or 0.0) >= memory_s else "memory"
    return OperatorFloor(
        use=use,
        bound="launch" if launch_s > floor_s else bound,
        compute_s=compute_s,
        launch_s=launch_s,
        floor_s=floor_s,
        fused_floor_s=max(compute_s or 0.0, use.fused_bytes / chip.memory_bytes_per_s),
    )


def _total(name: str, floors: Iterable[OperatorFloor]) -> PhaseFloor:
    """Sum over the work of the chip alone; copies over the link may overlap it."""
    own = [floor for floor in floors if floor.use.place == "device"]
    return PhaseFloor(
        name=name,
        floor_s=sum(floor.floor_s for floor in own),
        fused_floor_s=sum(floor.fused_floor_s for floor in own),
    )
