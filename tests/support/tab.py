"""What the tests of the tab look at: log directories with runs, and captures by hand."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from support.runs import RankSpec, make_info, make_run_dir, make_step

from trainperf.core.findings import Finding
from trainperf.core.phases import Tag
from trainperf.core.steps.records import StepRecord
from trainperf.traces.results import (
    Operator,
    RankTrace,
    Slice,
    Straggler,
    TraceLane,
    TraceReport,
    TraceStep,
    TraceTotals,
)


TRACE = "rank0-step000120-3steps.trace.json.gz"


def steps_of(number: int, *, data_wait: float = 20.0, first: int = 0) -> list[StepRecord]:
    """Steps of a CPU run with a mask, a scaler and a loss; step 60 is validation's neighbour."""
    steps = []
    for index in range(first, first + number):
        tags = int(Tag.WARMUP) if index < 12 else 0
        tags |= int(Tag.AFTER_VALIDATION) if index == 60 else 0
        steps.append(
            make_step(
                index,
                tags=tags,
                start_ns=index * 60_000_000,
                data_wait=data_wait,
                forward=14 + (index % 3),
                backward=13,
                optimizer=3,
                facts={
                    "tokens_effective": 50,
                    "tokens_padded": 80,
                    "attempts": 1,
                    "overflows": int(index % 10 == 5),
                    "loss_scale": 2048.0,
                    "loss": 4.0 - index / 1000,
                    "resident_bytes": 2**30,
                },
            )
        )
    return steps


def a_run(root: Path, name: str = "first", steps: Iterable[StepRecord] | None = None) -> Path:
    """A finished run of one rank in `root/name/trainperf`; its directory."""
    spec = RankSpec(steps=list(steps_of(100) if steps is None else steps), info=make_info())
    return make_run_dir(root / name / "trainperf", [spec])


def a_report(*files: str, name: str = "aten::addmm") -> TraceReport:
    """An analysis of so many ranks, 2 steps each."""
    ranks = tuple(_rank(place, file, name) for place, file in enumerate(files or (TRACE,)))
    return TraceReport(
        ranks=ranks,
        answer="the GPU is idle 39 % of its recorded span, 33 % because it waits for data",
        stragglers=(Straggler(step=121, rank=0, wait_s=0.004, transfer_s=0.001),),
        warnings=("rank 7 is missing",),
        findings=(
            Finding(
                id="data_wait",
                advice="Speed up the loader",
                title="the device waits for data",
                evidence=("33 ms of 100 ms",),
                gain_upper_bound=1.5,
                action="add workers",
            ),
        ),
    )


def write_capture(run: Path, report: TraceReport, name: str = "rank0-step000120-3steps") -> Path:
    """Put an analysis and the traces it names into a run; the analysis file."""
    folder = run / "traces"
    folder.mkdir(exist_ok=True)
    for rank in report.ranks:
        (folder / rank.file).write_bytes(b"\x1f\x8bnot really packed")
    target = folder / f"{name}.analysis.json"
    target.write_bytes(msgspec.json.encode(report))
    return target


def _rank(rank: int, file: str, name: str) -> RankTrace:
    return RankTrace(
        file=file,
        rank=rank,
        world_size=2,
        device="NVIDIA A100",
        step_source="ProfilerStep",
        steps=(
            TraceStep(step=120, step_s=0.1, gpu_busy_s=0.061, gpu_idle_s=0.039, kernels=400),
            TraceStep(step=121, step_s=0.102, gpu_busy_s=0.061, gpu_idle_s=0.041, kernels=400),
        ),
        totals=TraceTotals(steps=2, step_s=0.101, gpu_busy_fraction=0.61, kernels=400.0),
        top_operators=(Operator(name=name, calls=12, self_cpu_s=0.002, self_device_s=0.03),),
        lanes=(
            TraceLane(
                name="steps",
                slices=(Slice(start_s=0.0, end_s=0.1, name="step 120", kind="step"),),
            ),
            TraceLane(
                name="stream 7",
                slices=(
                    Slice(start_s=0.0, end_s=0.061, name="gemm", kind="compute"),
                    Slice(start_s=0.061, end_s=0.1, name="idle", kind="idle"),
                ),
            ),
        ),
        reasons={"comm_s": "not applicable: one rank reduces nothing"},
    )
