"""Bench of `trainperf report` on a run of a million steps: time and memory.

Writes a synthetic run, reads it back with the installed command, and prints both figures next to
their targets: `python -m scripts.bench.report [--steps N] [--ranks N] [--json FILE]`.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scripts.bench.harness import installed
from trainperf.core.phases import Tag
from trainperf.core.steps.block import BLOCK_STEPS
from trainperf.core.steps.codec import encode_entry, encode_rows
from trainperf.core.steps.records import EndMark, RunInfo, Totals


MILLION = 1_000_000
TARGETS = {"report_s": 10.0, "peak_rss_mb": 500.0, "bytes_per_step": 200.0}
"""Design §8; for a million steps on one rank."""

COLUMNS = [
    "data_stall_ns",
    "h2d_device_ns",
    "h2d_bytes",
    "h2d_tensors",
    "lead_forward",
    "lead_backward",
    "samples",
    "tokens_effective",
    "tokens_padded",
    "updates",
    "loss",
    "peak_bytes",
    "reserved_peak_bytes",
    "gc_ns",
    "overhead_ns",
]
"""What a CUDA run on one rank records."""

MEAN_PHASE_NS = (2_000_000, 200_000, 14_000_000, 26_000_000, 3_000_000, 300_000, 500_000, 10_000)


def write_rank(path: Path, rank: int, ranks: int, steps: int) -> int:
    """Write one rank's record file; returns its size in bytes."""
    rng = np.random.default_rng(rank)
    info = RunInfo(
        started_at="2026-11-01T12:00:00+00:00",
        rank=rank,
        world_size=ranks,
        device="cuda",
        columns=tuple(COLUMNS),
    )
    clock = 0
    with path.open("wb") as file:
        file.write(encode_entry(info))
        for first in range(0, steps, BLOCK_STEPS):
            number = min(BLOCK_STEPS, steps - first)
            phases = rng.gamma(50.0, np.array(MEAN_PHASE_NS) / 50.0, (number, 8)).astype(np.int64)
            starts = clock + np.concatenate(([0], phases.sum(axis=1).cumsum()[:-1]))
            clock = int(starts[-1] + phases[-1].sum())
            file.write(encode_rows(rows(first, starts, phases, rng)))
        file.write(encode_entry(Totals(at_step=steps - 1)))
        file.write(encode_entry(EndMark(reason="finished", fit_ns=clock, steps=steps)))
    return path.stat().st_size


def rows(
    first: int,
    starts: npt.NDArray[np.int64],
    phases: npt.NDArray[np.int64],
    rng: np.random.Generator,
) -> list[list[int | float]]:
    """Rows as a live run writes them: integers, and one float for the loss."""
    number = len(starts)
    tokens = rng.integers(6_000, 8_192, number).tolist()
    losses = rng.uniform(2.0, 3.0, number).tolist()
    stalls = (phases[:, 0] // 3).tolist()
    copies = rng.integers(80_000, 120_000, number).tolist()
    starts_ns, phases_ns = starts.tolist(), phases.tolist()
    out: list[list[int | float]] = []
    for i in range(number):
        step = first + i
        tags = int(Tag.WARMUP) if step < 20 else int(Tag.AFTER_VALIDATION) * (step % 1000 == 0)
        core = [step, starts_ns[i], tags, 1, *phases_ns[i]]
        copy = [stalls[i], copies[i], 131_072, 3, 4, 5]
        work = [8, tokens[i], 8_192, 1, losses[i]]
        out.append([*core, *copy, *work, 10_737_418_240, 12_884_901_888, 0, 24_000])
    return out


def measure(run: Path) -> tuple[float, float]:
    """Seconds and peak resident megabytes of `trainperf report` as a process of its own."""
    command = [sys.executable, "-m", "trainperf", "report", str(run), "--format", "json"]
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=installed())
    took_s = time.perf_counter() - begun
    # The largest child so far; this process has no other.
    return took_s, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> None:
    """Write, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=MILLION)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--json", type=Path, default=None, help="also write the figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "trainperf"
        run.mkdir()
        written = sum(
            write_rank(run / f"steps-rank{rank}.jsonl", rank, arguments.ranks, arguments.steps)
            for rank in range(arguments.ranks)
        )
        took_s, peak_mb = measure(run)
    figures = {
        "steps": arguments.steps,
        "ranks": arguments.ranks,
        "report_s": round(took_s, 2),
        "peak_rss_mb": round(peak_mb, 1),
        "bytes_per_step": round(written / arguments.steps / arguments.ranks, 1),
    }
    for name, figure in figures.items():
        target = f"   target ≤ {TARGETS[name]:g}" if name in TARGETS else ""
        print(f"{name:16}{figure:>12,}{target}")
    if arguments.json:
        arguments.json.write_text(json.dumps({**figures, "targets": TARGETS}, indent=2) + "\n")


if __name__ == "__main__":
    main()
