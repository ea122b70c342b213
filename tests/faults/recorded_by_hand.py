"""A run on a GPU as its records would be: equal steps, an audited one, what memory it had."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from support.light import make_use
from support.runs import RankSpec, make_info, make_run_dir, make_steps

from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.audit import OperatorUse, StepAudit


CARD = "NVIDIA A100-SXM4-40GB"
CARD_BYTES = 40 << 30

HEALTHY_MS = {"data_wait": 0.3, "h2d": 0.2, "forward": 15.0, "backward": 30.0, "optimizer": 4.0}
HEALTHY: Mapping[str, int | float | None] = {
    "data_stall_ns": 200_000,
    "h2d_device_ns": 600_000,
    "h2d_bytes": 8 << 20,
    "h2d_tensors": 3,
    "lead_forward": 6,
    "lead_backward": 9,
    "allocated_bytes": 12 << 30,
    "peak_bytes": 20 << 30,
    "reserved_peak_bytes": 22 << 30,
}
"""Facts of a step in which the device works ahead of nobody and memory is half full."""


def write_run(
    out: Path,
    *operators: OperatorUse,
    facts: Mapping[str, int | float | None] | None = None,
    phases_ms: Mapping[str, float] | None = None,
) -> None:
    """Write the run below *out*: two hundred steps, of which *operators* are audited in one."""
    info = make_info(
        device="cuda",
        config={"pin_memory": True, "num_workers": 4},
        hardware={"device_name": CARD, "device_memory_bytes": CARD_BYTES, "cpu_count": 16},
    )
    phases = {**HEALTHY_MS, **(phases_ms or {})}
    steps = make_steps(200, facts={**HEALTHY, **(facts or {})}, **phases)
    run = make_run_dir(out / "trainperf", [RankSpec(steps=steps, info=info)])
    if operators:
        audit = StepAudit(
            step=100,
            device="cuda",
            device_name=CARD,
            cache_bytes=40 << 20,
            operators=operators,
            audited_s=1.0,
        )
        write_document(audit, run)


def product(shapes: tuple[tuple[int, ...], ...], *, calls: int = 1) -> OperatorUse:
    """A product of two bf16 matrices."""
    (rows, inner), (_, columns) = shapes
    flops = 2 * rows * inner * columns * calls
    use = make_use(name="aten.mm.default", flops=flops, kind="matmul", precision="bf16")
    return msgspec.structs.replace(
        use, shapes=shapes, dtypes=("bf16", "bf16"), calls=calls, line="model.py:40"
    )
