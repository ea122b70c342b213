"""Speed-of-light floors of a step on a chip, and what bounds each operator.

A floor is a time that no implementation of the same operator on the same chip goes below: its
FLOPs at the peak rate of its precision, or its memory traffic at the peak bandwidth, whichever is
longer.  The sum over the operators is the step's speed of light.  Traffic that fits in the chip's
cache is left out, so that the floor stays below a measured time.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from trainperf.core.artifacts.audit import PARTS, OperatorUse, Part, StepAudit
from trainperf.core.machine.chips import Chip


Bound = Literal["compute", "memory", "launch", "transfer", "host"]

LAUNCH_S = 5e-6
"""Host time to launch an operator from Python where it was not measured: an order of magnitude."""

NEAR_ROOF = 0.75
"""Share of its floor's speed from which an operator is left alone or fused away."""

Phase = Literal["forward", "backward", "optimizer"]
_PARTS_OF: dict[Phase, tuple[Part, ...]] = {
    "forward": ("forward",),
    "backward": ("backward", "recompute"),
    "optimizer": ("optimizer",),
}


class OperatorFloor(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the audit against the chip; times of all its calls together."""

    use: OperatorUse
    bound: Bound
    """What takes longest: arithmetic, memory, the launches, or the link to the host.

    `host` is work on the CPU while the device is an accelerator; it has no floor.
    """
    compute_s: float | None = None
    """FLOPs at the peak of its precision; `None` when the chip's peak in it is not known."""
    memory_s: float = 0.0
    launch_s: float
    """Calls times the time of one launch; no part of the floor, since a graph saves it."""
    floor_s: float = 0.0
    """Work that is not done by the chip is no part of its speed of light."""
    fused_floor_s: float = 0.0
    """The floor when each chain of elementwise operators is one kernel."""

    def share_of_roof(self, measured_s: float) -> float | None:
        """Floor over measured time: from 0.75 on there is little to gain; `None` without a floor.

        Above 1 the measured time is not that of the calls, or the chip is faster than specified.
        """
        return self.floor_s / measured_s if measured_s > 0 and self.floor_s > 0 else None

    def near_roof(self, measured_s: float) -> bool | None:
        """Whether a faster kernel would gain little: leave it alone, or fuse it away."""
        share = self.share_of_roof(measured_s)
        return None if share is None else share >= NEAR_ROOF


class PhaseFloor(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of light of one phase of the step, or of the whole step."""

    floor_s: float
    fused_floor_s: float

    def over(self, measured_s: float) -> float | None:
        """How many times the floor was measured: 1 is perfect; `None` without a floor."""
        return measured_s / self.floor_s if self.floor_s > 0 else None


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """A step against a chip."""

    chip: Chip
    step: PhaseFloor
    """The speed of light of the operators; data wait, transfers and launches are not in it."""
    phases: dict[Phase, PhaseFloor]
    """Recomputation belongs to backward."""
    operators: tuple[OperatorFloor, ...]
    """Longest floor first."""
    unknown_precisions: tuple[str, ...]
    """Precisions of contractions for which the chip has no peak: their arithmetic is no floor."""
    mfu_flops: int
    hfu_flops: int
    peak_flops_per_s: float | None
    """Peak of the precision that most contractions are computed in."""

    def mfu(self, step_s: float) -> float | None:
        """Model FLOPs over what the chip could have done in that time; `None` if not known."""
        return _utilisation(self.mfu_flops, step_s, self.peak_flops_per_s)

    def hfu(self, step_s: float) -> float | None:
        """As `mfu`, with recomputed FLOPs."""
        return _utilisation(self.hfu_flops, step_s, self.peak_flops_per_s)


def roofline(audit: StepAudit, chip: Chip) -> Roofline:
    """The floors of an audited step on a chip."""
    floors = [_floor(use, chip) for use in audit.operators]
    main = audit.precision
    matmuls = (use for use in audit.operators if use.matmul_flops)
    return Roofline(
        chip=chip,
        step=_total(floors, PARTS),
        phases={phase: _total(floors, parts) for phase, parts in _PARTS_OF.items()},
        operators=tuple(sorted(floors, key=lambda floor: -floor.floor_s)),
        unknown_precisions=tuple(
            sorted({use.precision for use in matmuls} - chip.flops_per_s.keys())
        ),
        mfu_flops=audit.model_flops,
        hfu_flops=audit.hardware_flops,
        peak_flops_per_s=None if main is None else chip.flops_per_s.get(main),
    )


def faster(chip: Chip, factor: float) -> Chip:
    """The same chip with every rate that many times higher."""
    return msgspec.structs.replace(
        chip,
        flops_per_s={name: peak * factor for name, peak in chip.flops_per_s.items()},
        memory_bytes_per_s=chip.memory_bytes_per_s * factor,
    )


def _floor(use: OperatorUse, chip: Chip) -> OperatorFloor:
    launch_s = use.calls * (LAUNCH_S if chip.launch_s is None else chip.launch_s)
    if use.place == "host":
        return OperatorFloor(use=use, bound="host", launch_s=launch_s)
    if use.place == "link":
        link = chip.link_bytes_per_s
        crossed = max(use.read_bytes, use.written_bytes)
        link_s = crossed / link if link else 0.0
        return OperatorFloor(
            use=use, bound="transfer", launch_s=launch_s, floor_s=link_s, fused_floor_s=link_s
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
        memory_s=memory_s,
        launch_s=launch_s,
        floor_s=floor_s,
        fused_floor_s=max(compute_s or 0.0, use.fused_bytes / chip.memory_bytes_per_s),
    )


def _total(floors: Iterable[OperatorFloor], parts: Iterable[Part]) -> PhaseFloor:
    """Sum over the work of the chip alone; copies over the link may overlap it."""
    wanted = frozenset(parts)
    own = [floor for floor in floors if floor.use.part in wanted and floor.use.place == "device"]
    return PhaseFloor(
        floor_s=sum(floor.floor_s for floor in own),
        fused_floor_s=sum(floor.fused_floor_s for floor in own),
    )


def _utilisation(flops: int, step_s: float, peak: float | None) -> float | None:
    return flops / (step_s * peak) if peak and step_s > 0 else None
