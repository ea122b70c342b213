"""A simulated run of a week: packed parts of real columns, in which the same stretches come again.

So many steps are simulated (`arrivals`), written as lines, packed by the product, and repeated with
later numbers and times until the run is long enough.  From one step on a phase takes longer.  The
last part is lines, as in a run under way.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from scripts.simulation import records
from scripts.simulation.arrivals import Job
from trainperf.core.phases import Phase
from trainperf.core.run_directory import packed_part, record_file, record_part
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.codec import decode_info, decode_steps, encode_entry, encode_rows
from trainperf.core.steps.packed import STRETCH, assembled
from trainperf.core.steps.records import CORE_COLUMNS, EndMark, GapRecord, RunInfo


PART_STRETCHES = 45
"""Of a part of eight megabytes."""
DISTINCT = 16
TAIL_STEPS = 20_000
VALIDATION_EVERY = 10_000
VALIDATION_NS = 4_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LongJob:
    """A run of days."""

    ranks: int
    steps: int
    slower_from: int
    slower_ms: float
    """What the data wait takes longer from there on, on all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Stretches of one rank that are repeated."""

    info: RunInfo
    blocks: list[StepBlock]


def write(job: LongJob, run: Path) -> dict[str, float]:
    """Write it; returns bytes per step and rank, as lines and packed."""
    run.mkdir(parents=True)
    lines_bytes = packed_bytes = 0
    with TemporaryDirectory() as folder:
        distinct = Job(ranks=job.ranks, steps=DISTINCT * STRETCH, device="cuda")
        lines_bytes = records.write(distinct, Path(folder) / "run")
        for rank in range(job.ranks):
            content = record_file(Path(folder) / "run", rank).read_bytes()
            sources = _sources(content, job.slower_ms)
            _write_rank(job, rank, sources, run)
    packed = [path.stat().st_size for path in run.glob("*.packed")]
    packed_bytes, tail = sum(packed), sum(path.stat().st_size for path in run.glob("*.jsonl"))
    steps = job.ranks * job.steps
    return {
        "lines_bytes_per_step": lines_bytes / (job.ranks * DISTINCT * STRETCH),
        "packed_bytes_per_step": packed_bytes / (steps - job.ranks * TAIL_STEPS),
        "bytes_per_step": (packed_bytes + tail) / steps,
        "run_mb": (packed_bytes + tail) / 1e6,
        "files": float(len(list(run.iterdir()))),
    }


def _sources(content: bytes, slower_ms: float) -> tuple[_Source, _Source]:
    """The stretches of a rank as they are, and with a longer data wait."""
    first, *lines = content.split(b"\n")
    info = decode_info(first)
    schema = StepSchema(info.columns, info.device)
    block, _ = decode_steps(schema, [line for line in lines if line[:1] == b"["])
    slower = block.cells.copy()
    slower[:, len(CORE_COLUMNS) - len(Phase) + Phase.DATA_WAIT] += slower_ms * 1e6
    return _source(info, block), _source(info, StepBlock(schema, slower))


def _source(info: RunInfo, block: StepBlock) -> _Source:
    pieces = np.split(np.arange(len(block)), range(STRETCH, len(block), STRETCH))
    return _Source(info=info, blocks=[block.select(piece) for piece in pieces])


def _write_rank(job: LongJob, rank: int, sources: tuple[_Source, _Source], run: Path) -> None:
    first = record_file(run, rank)
    info, clock, part = sources[0].info, 3_000_000_000.0, 0
    numbers = range((job.steps - TAIL_STEPS) // STRETCH)
    startup = GapRecord(gap="startup", start_ns=0, duration_ns=int(clock), after_step=-1)
    others = [encode_entry(startup)[:-1]]
    for begin in range(0, len(numbers), PART_STRETCHES):
        blocks = []
        for number in numbers[begin : begin + PART_STRETCHES]:
            source = sources[number * STRETCH >= job.slower_from]
            # The first of a run warms up, and no other does.
            place = 0 if number == 0 else 1 + number % (DISTINCT - 1)
            blocks.append(_moved(source.blocks[place], number, clock))
            clock = float(blocks[-1].start_ns[-1] + blocks[-1].wall_ns[-1])
            if number * STRETCH // VALIDATION_EVERY < (number + 1) * STRETCH // VALIDATION_EVERY:
                gap = GapRecord(
                    gap="validation",
                    start_ns=int(clock),
                    duration_ns=VALIDATION_NS,
                    after_step=(number + 1) * STRETCH - 1,
                )
                others.append(encode_entry(gap)[:-1])
                clock += VALIDATION_NS
        path = packed_part(first.with_name(record_part(first.name, part)))
        path.write_bytes(assembled(info, StepBlock.joined(blocks), others))
        others, part = [], part + 1
    _write_tail(job, sources[1], first.with_name(record_part(first.name, part)), clock)


def _moved(block: StepBlock, number: int, clock: float) -> StepBlock:
    """A stretch with other numbers and times."""
    cells = block.cells.copy()
    cells[:, 0] = number * STRETCH + np.arange(len(cells))
    cells[:, 1] += clock - cells[0, 1]
    return StepBlock(block.schema, cells)


def _write_tail(job: LongJob, source: _Source, path: Path, clock: float) -> None:
    at = (job.steps - TAIL_STEPS) // STRETCH * STRETCH
    with path.open("wb") as file:
        number = 1
        while at < job.steps:
            block = source.blocks[number % DISTINCT or 1]
            cells = block.cells[: job.steps - at].copy()
            cells[:, 1] += clock - cells[0, 1]
            cells[:, 0] = np.arange(at, at + len(cells))
            clock = float(cells[-1, 1] + block.wall_ns[len(cells) - 1])
            file.write(encode_rows([[_whole(cell) for cell in row] for row in cells.tolist()]))
            at, number = at + len(cells), number + 1
        file.write(encode_entry(EndMark(reason="finished", fit_ns=int(clock), steps=job.steps)))


def _whole(cell: float) -> float | None:
    if math.isnan(cell):
        return None
    return int(cell) if cell.is_integer() else cell


def week(ranks: int = 8, steps: int = 6_000_000) -> LongJob:
    """The target of the bench."""
    return LongJob(ranks=ranks, steps=steps, slower_from=4_100_000, slower_ms=9.0)


def shorter(job: LongJob, steps: int) -> LongJob:
    """The same, with fewer steps."""
    share = steps / job.steps
    return replace(job, steps=steps, slower_from=round(job.slower_from * share))
