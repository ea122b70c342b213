"""Operators with known work on a chip with round limits, and their floors."""

from pathlib import Path

from trainperf.analysis.roofline.roofline import Roofline, roofline
from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.audit import Kind, MeasuredChip, OperatorUse, Part, StepAudit
from trainperf.core.machine.chips import Chip


CHIP = Chip(
    name="planted",
    flops_per_s={"fp32": 1e12, "bf16": 2e12},
    memory_bytes_per_s=1e10,
    link_bytes_per_s=1e9,
    launch_s=1e-6,
    source="this test",
)
"""A terabyte takes a hundred seconds, a TFLOP one."""


def make_use(
    *,
    name: str = "aten.op.default",
    flops: int = 0,
    memory: int = 0,
    kind: Kind = "pointwise",
    part: Part = "forward",
    precision: str = "fp32",
    host_s: float = 0.0,
) -> OperatorUse:
    """An operator called once, which reads *memory* bytes and writes none.

    Anything else is set with `msgspec.structs.replace`.
    """
    matmul = flops if kind == "matmul" else 0
    return OperatorUse(
        name=name,
        part=part,
        kind=kind,
        place="device",
        module=None,
        line=None,
        shapes=(),
        dtypes=(),
        precision=precision,
        calls=1,
        flops=flops,
        matmul_flops=matmul,
        repeated_flops=matmul if part == "recompute" else 0,
        read_bytes=memory,
        written_bytes=0,
        memory_bytes=memory,
        fused_bytes=memory // 4,
        host_s=host_s,
    )


def make_audit(*uses: OperatorUse, device: str = "cpu", step: int | None = None) -> StepAudit:
    """One step of them."""
    return StepAudit(
        step=step,
        device=device,
        device_name="planted",
        cache_bytes=None,
        operators=uses,
        audited_s=1.0,
    )


def make_light(*uses: OperatorUse) -> Roofline:
    """Their floors."""
    return roofline(make_audit(*uses), CHIP)


def write_audit(run: Path, *uses: OperatorUse, device: str = "cpu", step: int = 20) -> None:
    """The audit and its chip, into a run directory."""
    write_document(make_audit(*uses, device=device, step=step), run)
    write_document(MeasuredChip(chip=CHIP), run)


COMPUTE = make_use(name="aten.mm.default", flops=10**9, memory=10**6, kind="matmul")
"""1 ms of arithmetic, 0.1 ms of memory."""
MEMORY = make_use(name="aten.add.Tensor", flops=10**6, memory=10**7)
"""1 µs of arithmetic, 1 ms of memory."""
