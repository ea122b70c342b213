"""Bench of the line sampler: blocks of a loop with and without it, in turns in one process.

    python -m scripts.bench.lines [--pairs 20] [--seconds 1] [--json FILE]

A row is a loop and a budget.  At the budget of a fit the cost is near what can be measured at all,
so it is measured at fifty times the rate too, and divided by the samples: that is what a sample
takes from the loop, next to what the sampler counts for it.
"""

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from scripts.bench.harness import (
    Cost,
    PairedEstimate,
    arguments,
    cost_of,
    estimate,
    in_turns,
    publish,
    spread,
)
from trainperf.core.artifacts.lines import SampledLines
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.recording.line_sampler import BUDGET
from trainperf.recording.probes.lines import LinesProbe
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
    documents: list[SampledLines] = []

    def bare() -> Cost:
        return cost_of(lambda: _deep(LOOPS[loop], DEPTH), seconds)

    def sampled() -> Cost:
        with tempfile.TemporaryDirectory() as run:
            probe = _started(Path(run), budget)
            cost = bare()
            probe.detach()
            documents.append(probe.document())
        return cost

    bare()
    costs = in_turns(sampled, bare, pairs)
    samples, cost_s = sum(each.taken for each in documents), sum(each.cost_s for each in documents)
    rate = samples / pairs / seconds
    ratio = estimate([with_it.wall_us / without.wall_us for with_it, without in costs])
    return SamplerRow(
        loop=loop,
        budget=budget,
        step_us=estimate([without.wall_us for _, without in costs]).median,
        wall_ratio=ratio,
        thread_ratio=estimate([own.thread_us / without.thread_us for own, without in costs]),
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


def _deep(step: Callable[[], object], depth: int) -> object:
    return step() if depth == 0 else _deep(step, depth - 1)


def main() -> None:
    """Print a table, and write it as JSON where asked."""
    parser = arguments(__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        measure(loop, budget, given.pairs, given.seconds)
        for loop in LOOPS
        for budget in (BUDGET, 50 * BUDGET)
    ]
    head = ["loop", "budget", "step", "wall", "interval", "thread CPU", "interval"]
    head += ["samples/s", "lost µs", "counted µs"]
    cells = [
        (
            row.loop,
            f"{row.budget:.2%}",
            f"{row.step_us:,.0f} µs",
            *spread(row.wall_ratio, ".4f"),
            *spread(row.thread_ratio, ".4f"),
            f"{row.samples_per_s:.1f}",
            f"{row.lost_us:.0f}",
            f"{row.counted_us:.0f}",
        )
        for row in rows
    ]
    publish(given.json, head, cells, {"rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
