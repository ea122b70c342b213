"""Runs with a planted audit: operators, their chip and the phases of the steady steps."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from support.runs import RankSpec, make_info, make_run_dir, make_steps

from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.audit import MeasuredChip, OperatorUse, StepAudit
from trainperf.core.machine.chips import Chip
from trainperf.traces.capture_files import CaptureFacts, CaptureReport
from trainperf.traces.results import Operator, RankTrace, TraceStep, TraceTotals


MS = 1e-3

CHIP = Chip(
    name="planted",
    flops_per_s={"fp64": 1e11, "fp32": 1e12, "bf16": 1e12},
    memory_bytes_per_s=1e10,
    link_bytes_per_s=None,
    launch_s=5e-6,
    source="a test",
)
"""1 TFLOP/s and 10 GB/s: a megabyte takes 0.1 ms."""

USE = OperatorUse(
    name="aten.mul.Tensor",
    part="forward",
    kind="pointwise",
    place="device",
    module="Net.layer",
    line="net.py:7",
    shapes=((64, 64),),
    dtypes=("fp32",),
    precision="fp32",
    calls=1,
    flops=0,
    matmul_flops=0,
    repeated_flops=0,
    read_bytes=0,
    written_bytes=0,
    memory_bytes=0,
    fused_bytes=0,
    host_s=0.0,
)


def use(name: str, ms: float = 0.0, **fields: object) -> OperatorUse:
    """An operator that took so many milliseconds under the audit, all of them busy."""
    given = {"host_s": ms * MS, "busy_s": ms * MS, **fields}
    return msgspec.structs.replace(USE, name=f"aten.{name}.default", **given)


def product(name: str, ms: float = 0.0, *, flops: int = 0, **fields: object) -> OperatorUse:
    """The same for a contraction."""
    counted = {"kind": "matmul", "flops": flops, "matmul_flops": flops}
    return use(name, ms, **{**counted, **fields})


SMALL = use("div", 0.005, shapes=((),), line="net.py:1")
"""What every step has somewhere: a call that computes next to nothing."""


def evidence_of(
    path: Path,
    uses: Sequence[OperatorUse],
    *,
    device: str = "cpu",
    chip: Chip | str = CHIP,
    micro_batches: int = 1,
    facts: dict[str, int | float | None] | None = None,
    **phases_ms: float,
) -> Facts:
    """What a run of sixty equal steps shows, one of which was audited.

    Args:
        path: A directory of the test's own.
        uses: The operators, `SMALL` besides.
        device: What computed.
        chip: Its limits, or its name in the table.
        micro_batches: Of the audited step.
        facts: Of every step.
        phases_ms: Of every step; 20 ms of forward, 30 of backward and 10 of optimizer by default.
    """
    phases = phases_ms or {"forward": 20.0, "backward": 30.0, "optimizer": 10.0}
    spec = RankSpec(steps=make_steps(60, facts=facts, **phases), info=make_info(device=device))
    run = make_run_dir(path / "trainperf", [spec])
    named = chip if isinstance(chip, str) else chip.name
    audit = StepAudit(
        step=30,
        micro_batches=micro_batches,
        device=device,
        device_name=named,
        cache_bytes=None,
        operators=(SMALL, *uses),
        audited_s=1.0,
    )
    write_document(audit, run)
    if isinstance(chip, Chip):
        write_document(MeasuredChip(chip=chip), run)
    return examine(Run.open(run))


def capture_of(operators: dict[str, tuple[int, float]], steps: int = 2) -> CaptureReport:
    """A trace of a device: calls and milliseconds of each operator in a step."""
    top = tuple(
        Operator(
            name=f"aten::{name}", calls=calls * steps, self_device_s=ms * MS * steps, self_cpu_s=0.0
        )
        for name, (calls, ms) in operators.items()
    )
    traced = tuple(TraceStep(step=number, step_s=0.06, gpu_busy_s=0.05) for number in range(steps))
    rank = RankTrace(
        file="rank0.json",
        rank=0,
        steps=traced,
        totals=TraceTotals(steps=steps, step_s=0.06),
        top_operators=top,
    )
    return CaptureReport(
        ranks=(rank,), capture=CaptureFacts(first_step=0, first_index=0, complete_steps=steps)
    )
