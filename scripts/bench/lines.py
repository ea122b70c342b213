"""Bench of the line sampler: blocks of a loop with and without it, in turns in one process.

    python -m scripts.bench.lines [--pairs 20] [--seconds 1] [--json FILE]

A row is a loop and a budget.  At the budget of a fit the cost is near what can be measured at all,
so it is measured at fifty times the rate too, and divided by the samples: that is what a sample
takes from the loop, next to what the sampler counts for it.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from scripts.bench.harness import PairedEstimate, estimate, machine_line, table, write_json
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.recording.probes.lines import BUDGET, LinesProbe
from trainperf.recording.recorder import Recorder


DEPTH = 40
"""Frames around a step: as many as a `Trainer` has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerRow:
    """One loop at one budget."""

    loop: str
    budget: float
    step_us: float
    wall_ratio: PairedEstimate
    thread_ratio: PairedEstimate
    """Of the CPU time of the training thread."""
    samples_per_s: float
    lost_us: float
    """Wall time that a sample takes from the loop, by the median ratio."""
    counted_us: float
    """What the sampler counts for it."""


def python_step(work: int) -> Callable[[], object]:
    """Python alone, which never gives up the interpreter lock by itself."""
    return lambda: sum(number * number for number in range(work))


def torch_step(work: int) -> Callable[[], object]:
    """Small operators, each of which gives it up."""
    weight = torch.randn(128, 128) / 16

    def step() -> object:
        hidden = weight
        for _ in range(work):
            hidden = torch.tanh(hidden @ weight)
        return hidden

    return step


LOOPS: dict[str, Callable[[], object]] = {
    "1 ms, Python": python_step(14_000),
    "1 ms, operators": torch_step(8),
    "15 ms, operators": torch_step(120),
}


def measure(loop: str, budget: float, pairs: int, seconds: float) -> SamplerRow:
    """Run the pairs of one row; who goes first changes from pair to pair."""
    step = LOOPS[loop]
    _block(step, seconds)
    walls, threads, bare_us, samples, cost_s = [], [], [], 0, 0.0
    for number in range(pairs):
        taken: dict[bool, tuple[float, float]] = {}
        for sampled in (True, False) if number % 2 else (False, True):
            if not sampled:
                taken[False] = _block(step, seconds)
                continue
            with tempfile.TemporaryDirectory() as run:
                probe = _started(Path(run), budget)
                taken[True] = _block(step, seconds)
                probe.detach()
                document = probe.document()
                samples, cost_s = samples + document.taken, cost_s + document.cost_s
        walls.append(taken[True][0] / taken[False][0])
        threads.append(taken[True][1] / taken[False][1])
        bare_us.append(taken[False][0])
    rate = samples / pairs / seconds
    ratio = estimate(walls)
    return SamplerRow(
        loop=loop,
        budget=budget,
        step_us=estimate(bare_us).median,
        wall_ratio=ratio,
        thread_ratio=estimate(threads),
        samples_per_s=rate,
        lost_us=(ratio.median - 1) / rate * 1e6,
        counted_us=cost_s / max(1, samples) * 1e6,
    )


def _started(run: Path, budget: float) -> LinesProbe:
    recorder = Recorder(monotonic_ns)
    recorder.set_columns(("overhead_ns",), {"overhead_ns"})
    probe = LinesProbe(run, budget=budget)
    probe.attach(recorder)
    return probe


def _block(step: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Microseconds a step took: wall time, and CPU time of this thread."""
    steps, wall, cpu = 0, time.perf_counter_ns(), time.thread_time_ns()
    until = wall + int(seconds * 1e9)
    while time.perf_counter_ns() < until:
        _deep(step, DEPTH)
        steps += 1
    return (
        (time.perf_counter_ns() - wall) / steps / 1e3,
        (time.thread_time_ns() - cpu) / steps / 1e3,
    )


def _deep(step: Callable[[], object], depth: int) -> object:
    return step() if depth == 0 else _deep(step, depth - 1)


def _shown(ratio: PairedEstimate) -> str:
    return f"{ratio.median:.4f} [{ratio.low:.4f}, {ratio.high:.4f}]"


def main() -> None:
    """Print a table, and write it as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        measure(loop, budget, arguments.pairs, arguments.seconds)
        for loop in LOOPS
        for budget in (BUDGET, 50 * BUDGET)
    ]
    head = ("loop", "budget", "step", "wall", "thread CPU", "samples/s", "lost µs", "counted µs")
    cells = [
        (
            row.loop,
            f"{row.budget:.2%}",
            f"{row.step_us:,.0f} µs",
            _shown(row.wall_ratio),
            _shown(row.thread_ratio),
            f"{row.samples_per_s:.1f}",
            f"{row.lost_us:.0f}",
            f"{row.counted_us:.0f}",
        )
        for row in rows
    ]
    print(machine_line(), "", table(head, cells), sep="\n")
    if arguments.json is not None:
        write_json(arguments.json, {"rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
