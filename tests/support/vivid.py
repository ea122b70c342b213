"""A run as people have them, for pictures: noise, epochs, validation, overflow, a straggler.

All figures are invented; the generator is seeded, so a picture is the same every time.
"""

import math
import random
from pathlib import Path

import msgspec
from support.runs import MS, RankSpec, make_gap, make_info, make_run_dir, make_step
from support.tab import a_report

from trainperf.core.phases import Gap, Tag
from trainperf.core.steps.records import GapRecord, StepRecord, Totals
from trainperf.traces.results import Slice, TraceLane, TraceReport


EPOCH = 150


def vivid_run(root: Path, name: str, *, workers: int = 2, steps: int = 900, seed: int = 7) -> Path:
    """Two ranks on CUDA; rank 1 has the slower loader, and more workers make it shorter."""
    specs = [_spec(rank, workers, steps, seed) for rank in range(2)]
    return make_run_dir(root / name / "trainperf", specs)


def _spec(rank: int, workers: int, number: int, seed: int) -> RankSpec:
    shared = random.Random(seed)  # noqa: S311 noise, not a secret
    own = random.Random(100 * seed + rank)  # noqa: S311
    steps: list[StepRecord] = []
    gaps: list[GapRecord] = [make_gap(Gap.STARTUP, 2300)]
    clock = 2300 * MS
    for index in range(number):
        if index and index % EPOCH == 0:
            gaps.append(make_gap(Gap.VALIDATION, 1900, start_ns=clock, after_step=index - 1))
            clock += 1900 * MS
        step = _step(index, rank, workers, (shared, own), clock)
        clock += step.wall_ns
        steps.append(step)
    totals = Totals(at_step=number - 1, actions_ns={"SampleImages.on_train_batch_end": 5 * MS})
    config = {"num_workers": workers, "batch_size": 16, "pin_memory": True}
    info = make_info(rank=rank, world_size=2, device="cuda", config=config)
    return RankSpec(steps=steps, info=info, gaps=gaps, totals=totals)


def _step(
    index: int, rank: int, workers: int, noise: tuple[random.Random, random.Random], clock: int
) -> StepRecord:
    shared, own = noise
    together, slow = shared.gauss(0, 1), shared.random() < 0.008
    waits = [(22 / workers) * (1 + 0.5 * late) for late in (0, 1)]
    wait = waits[rank] * (1 + 0.12 * own.random())
    if index % EPOCH == 0:
        wait += 95
    tail = 2.2 + (waits[1] - waits[0]) * (rank == 0) + abs(own.gauss(0, 0.5))
    compile_ms = 900 if index == 0 else max(0.0, 40 - 5 * index)
    overflow = index in {3, 9, 21} or (index > 400 and index % 173 == 0)
    return make_step(
        index,
        tags=_tags(index, overflow=overflow, slow=slow),
        start_ns=clock,
        data_wait=wait,
        h2d=0.9,
        forward=15 + compile_ms + 0.4 * together,
        backward=27 + tail + 0.7 * together + 60 * slow,
        optimizer=4.2,
        callbacks=2.4 + 9 * (index % 50 == 0),
        loop=1.3 + (waits[1] - waits[0]) * 0.2 * (rank == 0),
        facts={
            "data_stall_ns": int(wait * 0.8 * MS),
            "h2d_device_ns": int(0.75 * MS),
            "h2d_bytes": 4 << 20,
            "h2d_tensors": 3,
            "lead_forward": 3,
            "lead_backward": 2,
            "tail_ns": int(tail * MS),
            "samples": 16,
            "tokens_effective": 9200 + int(900 * together),
            "tokens_padded": 16 * 1024,
            "attempts": 1,
            "overflows": int(overflow),
            "loss_scale": 2.0 ** (16 - sum(index > at for at in (3, 9, 21))),
            "loss": 3.1 + 7.5 * math.exp(-index / 140) + 0.12 * own.gauss(0, 1),
            "allocated_bytes": (11 << 30) + index * 200_000,
            "reserved_bytes": 15 << 30,
            "peak_bytes": (14 << 30) + index * 200_000,
            "overhead_ns": 26_000,
        },
    )


def _tags(index: int, *, overflow: bool, slow: bool) -> int:
    tags = Tag.WARMUP if index < 20 else Tag(0)
    if index % EPOCH == 0:
        tags |= Tag.FIRST_IN_EPOCH
    if index and index % EPOCH == 0:
        tags |= Tag.AFTER_VALIDATION
    if 500 <= index < 506:
        tags |= Tag.PROFILED
    if overflow:
        tags |= Tag.OVERFLOW
    if slow:
        tags |= Tag.GC
    return int(tags)


def vivid_trace() -> TraceReport:
    """Six steps in which the device waits for the loader."""
    begins = [n * 0.09 for n in range(6)]
    kernels = [
        Slice(
            start_s=begin + 0.03 + n * 0.0005,
            end_s=begin + 0.03 + n * 0.0005 + 0.0004,
            name=("ampere_sgemm_128x64", "vectorized_elementwise", "softmax")[n % 3],
            kind="compute",
        )
        for begin in begins
        for n in range(100)
    ]
    lanes = {
        "steps": _slices(begins, 0.0, 0.09, "step", "ProfilerStep"),
        "loader": _slices(begins, 0.0, 0.028, "loader", "enumerate(DataLoader)"),
        "host": [
            *_slices(begins, 0.03, 0.042, "operator", "forward"),
            *_slices(begins, 0.043, 0.07, "operator", "backward"),
            *_slices(begins, 0.074, 0.08, "operator", "AdamW.step"),
        ],
        "stream 7": kernels,
        "stream 20": _slices(begins, 0.05, 0.081, "communication", "ncclDevKernel_AllReduce"),
        "idle": _slices(begins, 0.081, 0.12, "idle", "no data"),
    }
    report = a_report()
    totals = msgspec.structs.replace(
        report.ranks[0].totals,
        gpu_busy_s=0.061,
        compute_fraction=0.61,
        idle_data_wait_fraction=0.33,
        idle_host_bound_fraction=0.04,
        idle_other_fraction=0.02,
    )
    rank = msgspec.structs.replace(
        report.ranks[0],
        totals=totals,
        lanes=tuple(TraceLane(name=name, slices=tuple(slices)) for name, slices in lanes.items()),
    )
    answer = (
        "The GPU is idle 39 % of its recorded span, 33 % because it waits for the DataLoader and "
        "4.0 % because the host launches too late."
    )
    return msgspec.structs.replace(report, answer=answer, ranks=(rank,), warnings=(), stragglers=())


def _slices(begins: list[float], first: float, last: float, kind: str, name: str) -> list[Slice]:
    return [
        Slice(start_s=begin + first, end_s=begin + last, name=name, kind=kind) for begin in begins
    ]
