"""Record files of a simulated job, written with the product's own codec."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from scripts.simulation.arrivals import Job, Simulation, Steps, step_s
from trainperf.core.phases import Phase, Tag
from trainperf.core.run_directory import record_file
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.codec import encode_entry, encode_rows
from trainperf.core.steps.records import EndMark, GapRecord, RunInfo, Totals


WARM_UP = 20
"""Steps tagged so, as the recorder does."""

UNHEARD = 2
"""First backwards, in which the parameter that comes last is not known: no tail."""

_CPU = ("tail_ns", "samples", "gc_ns", "overhead_ns", "resident_bytes", "loss")
_CUDA = (
    "tail_ns",
    "data_stall_ns",
    "h2d_bytes",
    "h2d_tensors",
    "samples",
    "tokens_effective",
    "tokens_padded",
    "gc_ns",
    "overhead_ns",
    "peak_bytes",
    "reserved_peak_bytes",
    "loss",
)


def info_of(job: Job, rank: int) -> RunInfo:
    """Line 1 of a rank's file."""
    return RunInfo(
        started_at="2026-11-22T12:00:00+00:00",
        rank=rank,
        world_size=job.ranks,
        device=job.device,
        columns=_CPU if job.device == "cpu" else _CUDA,
        software={"trainperf": "simulated"},
        hardware={
            "device_name": "simulated",
            "host": f"node{rank // job.per_host:05d}",
            "local_world_size": min(job.per_host, job.ranks),
        },
        config={"loop": job.loop, "strategy": "ddp", "batch_size": 8},
        notes={"simulated": "scripts/simulate_ranks.py: this job never ran"},
    )


def write(job: Job, directory: Path) -> int:
    """Write one file per rank; returns the bytes of all."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [record_file(directory, rank) for rank in range(job.ranks)]
    simulation = Simulation(job)
    for rank, path in enumerate(paths):
        startup = GapRecord(
            gap="startup", start_ns=0, duration_ns=int(simulation.startup_ns[rank]), after_step=-1
        )
        path.write_bytes(encode_entry(info_of(job, rank)) + encode_entry(startup))
    ends = np.zeros(job.ranks, np.int64)
    for steps in simulation.chunks():
        ends = steps.start_ns[-1] + steps.wall_ns[-1]
        for path, lines in zip(paths, _lines(job, steps), strict=True):
            with path.open("ab") as file:
                file.write(lines)
    for path, end in zip(paths, ends.tolist(), strict=True):
        with path.open("ab") as file:
            file.write(encode_entry(Totals(at_step=job.steps - 1)))
            file.write(encode_entry(EndMark(reason="finished", fit_ns=end, steps=job.steps)))
    return sum(path.stat().st_size for path in paths)


def write_truth(job: Job, path: Path) -> None:
    """What was planted, and what a step takes with and without it."""
    truth = {
        "job": asdict(job),
        "step_s": step_s(job),
        "step_s_without_plants": step_s(job.healthy()),
    }
    path.write_text(json.dumps(truth, indent=2) + "\n")


def blocks(job: Job) -> Iterator[tuple[StepBlock, ...]]:
    """The same steps as the files have them, without files: core columns and the tail."""
    schema = StepSchema(("tail_ns",), job.device)
    for steps in Simulation(job).chunks():
        rows = np.empty((job.ranks, len(steps.tail_ns), len(Phase) + 5))
        rows[:, :, 0] = np.arange(steps.first, steps.first + len(steps.tail_ns))
        rows[:, :, 1] = steps.start_ns.T
        rows[:, :, 2] = np.where(rows[:, :, 0] < WARM_UP, int(Tag.WARMUP), 0)
        rows[:, :, 3] = 1
        for phase, spent in zip(Phase, steps.phases_ns, strict=True):
            rows[:, :, 4 + phase] = spent.T
        rows[:, :, -1] = np.where(rows[:, :, 0] < UNHEARD, np.nan, steps.tail_ns.T)
        yield tuple(StepBlock(schema, matrix) for matrix in rows)


def _lines(job: Job, steps: Steps) -> Iterator[bytes]:
    """Each rank's lines: whole numbers, and a loss that falls."""
    number = len(steps.tail_ns)
    indices = np.arange(steps.first, steps.first + number)
    rows = np.zeros((number, 4 + len(Phase) + len(_CPU if job.device == "cpu" else _CUDA) - 1), int)
    rows[:, 0] = indices
    rows[:, 2] = np.where(indices < WARM_UP, int(Tag.WARMUP), 0)
    rows[:, 3] = 1
    facts = 4 + len(Phase)
    if job.device == "cpu":
        rows[:, facts + 1 :] = (8, 0, 24_000, 3_221_225_472)
    else:
        rows[:, facts + 2 :] = (262_144, 3, 8, 7_000, 8_192, 0, 24_000, 10**10, 12 * 10**9)
    losses = (2.0 + 3.0 / np.sqrt(1.0 + indices)).tolist()
    for rank in range(job.ranks):
        rows[:, 1] = steps.start_ns[:, rank]
        for phase, spent in zip(Phase, steps.phases_ns, strict=True):
            rows[:, 4 + phase] = spent[:, rank]
        rows[:, facts] = steps.tail_ns[:, rank]
        if job.device != "cpu":
            rows[:, facts + 1] = steps.stall_ns[:, rank]
        cells = rows.tolist()
        for place in range(max(0, UNHEARD - steps.first)):
            cells[place][facts] = None
        yield encode_rows([[*row, loss] for row, loss in zip(cells, losses, strict=True)])
