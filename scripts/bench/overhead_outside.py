"""Cost of `trainperf run` in a loop that knows nothing of it: thread CPU time, processes in turns.

    python -m scripts.bench.overhead_outside [--loop linear] [--pairs 4] [--json PATH]

Two processes train the same model for fixed work, one started with `trainperf run` and one without;
they take turns block by block, and who goes first changes.  A row shows the median over pairs of
blocks, with its interval.  `nothing` compares two without; `LoopMonitor` is the loop with one in
it, three phases bracketed, and `the clock alone` stands there instead and reads the clock.
`linear` is one layer, `deep` 64 small ones, `dictionary` returns loss and logits as models of
Hugging Face do; `loader` is one layer whose batches come from a
`DataLoader`, in this process.  `loader not heard` is `trainperf run` where `sys.monitoring` has no
number free: with `--base "loader not heard" --only "trainperf run" --loop loader` a row is what it
costs to hear of the loader, from Python 3.12 on.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from scripts.bench.alternation import Cost, Stopwatch
from scripts.bench.harness import estimate, installed, machine_line, table, write_json
from scripts.bench.pipe_turns import MARK, PipeTurns, figures_in_turns
from scripts.bench.timestamps import Timestamps
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.readings import OVERHEAD_S
from trainperf.loop import LoopMonitor
from trainperf.plugins.outside_loader import TOOLS


ROWS = ("nothing", "trainperf run", "LoopMonitor", "loader not heard", "the clock alone")
WITHOUT_REPORT = (ROWS[0], ROWS[4])


class Returning(nn.Module):
    """A layer that returns its loss and its logits by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Both."""
        logits: Tensor = self.layer(x)
        return {"loss": mse_loss(logits, x), "logits": logits}


def _deep() -> nn.Module:
    return nn.Sequential(*(nn.Linear(32, 32) for _ in range(64)))


LOOPS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(32, 32),
    "deep": _deep,
    "dictionary": Returning,
    "loader": lambda: nn.Linear(32, 32),
}


def train(name: str, watch: Stopwatch, monitor: LoopMonitor | Timestamps | None) -> None:
    """Train for as many steps as the stopwatch needs."""
    torch.manual_seed(0)
    model = LOOPS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    batches = _batches(name, watch.needed)
    if isinstance(monitor, LoopMonitor):
        monitor.watch(model, optimizer)
    for step, batch in enumerate(batches if monitor is None else monitor.batches(batches)):
        watch.at(step)
        with _phase(monitor, "forward"):
            output = model(batch)
            loss = output["loss"] if isinstance(output, dict) else mse_loss(output, batch)
        with _phase(monitor, "backward"):
            loss.backward()
        with _phase(monitor, "optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        if monitor is not None:
            monitor.end_step(loss)


def _batches(name: str, number: int) -> Iterable[Tensor]:
    if name != "loader":
        return [torch.randn(4, 32) for _ in range(number)]
    rows = TensorDataset(torch.randn(4 * number, 32))
    return DataLoader(rows, batch_size=4, collate_fn=lambda rows: torch.stack([x for (x,) in rows]))


def _deafen() -> None:
    """Take what a recording would hear of a loader with."""
    if sys.version_info >= (3, 12):
        for tool in TOOLS:
            sys.monitoring.use_tool_id(tool, "another")


_NO_PHASE: AbstractContextManager[None] = nullcontext()


def _phase(monitor: LoopMonitor | Timestamps | None, name: str) -> AbstractContextManager[None]:
    return _NO_PHASE if monitor is None else monitor.phase(name)


def _standing_in(row: str, place: Path) -> LoopMonitor | Timestamps | None:
    if row == ROWS[2]:
        return LoopMonitor(place)
    return Timestamps() if row == ROWS[4] else None


def pair(name: str, row: str, options: argparse.Namespace) -> tuple[list[tuple[Cost, Cost]], float]:
    """Two processes in turns: costs block by block, and microseconds a step as reported."""
    with tempfile.TemporaryDirectory() as place:
        places = [Path(place) / side for side in ("base", "own")]
        rows = (options.base, row)
        children = [_child(name, *each, options) for each in zip(rows, places, strict=True)]
        figures = figures_in_turns(children, options.blocks)
        costs = [[Cost(**cost) for cost in own] for own in figures]
        reported_us = 0.0 if row in WITHOUT_REPORT else _reported_us(places[1], options)
        return list(zip(*costs, strict=True)), reported_us


def _child(
    name: str, row: str, place: Path, options: argparse.Namespace
) -> "subprocess.Popen[str]":
    own = ["-m", "scripts.bench.overhead_outside", "--child", row, "--loop", name]
    own += ["--blocks", str(options.blocks), "--steps", str(options.steps), "--place", str(place)]
    launched = ["-m", "trainperf", "run", "--out", str(place)] if row in ROWS[1::2] else []
    pipe = subprocess.PIPE
    command = [sys.executable, *launched, *own]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=installed())


def _reported_us(place: Path, options: argparse.Namespace) -> float:
    """What the run says that it cost; one that had switched itself off would be cheap."""
    summary = summarize(Run.open(place / "trainperf"))
    least = options.blocks * options.steps
    if summary.run.steps < least or summary.run.faults:
        raise RuntimeError(f"{summary.run.steps} of {least} steps recorded, {summary.run.faults}")
    return 1e6 * (summary.value(OVERHEAD_S) or 0.0)


def measured(name: str, row: str, options: argparse.Namespace) -> dict[str, object]:
    """One row."""
    pairs, reported = [], []
    for _ in range(options.pairs):
        costs, reported_us = pair(name, row, options)
        pairs += costs
        reported.append(reported_us)
    return {
        "loop": name,
        "row": row,
        "base_us": statistics.median(base.thread_us for base, _ in pairs),
        "added_us": asdict(estimate([own.thread_us - base.thread_us for base, own in pairs])),
        "ratio": asdict(estimate([own.thread_us / base.thread_us for base, own in pairs])),
        "wall_added_us": asdict(estimate([own.wall_us - base.wall_us for base, own in pairs])),
        "reported_us": statistics.median(reported),
    }


def shown(rows: list[dict[str, object]]) -> str:
    """The rows as a table."""
    head = ["loop: started", "alone, µs", "µs a step", "interval", "× the loop", "as reported"]
    cells = []
    for row in rows:
        added, ratio = (json.loads(json.dumps(row[name])) for name in ("added_us", "ratio"))
        cells.append(
            [
                f"{row['loop']}: {row['row']}",
                f"{row['base_us']:.0f}",
                f"{added['median']:+.1f}",
                f"{added['low']:+.1f} to {added['high']:+.1f}",
                f"{ratio['median']:.3f}",
                f"{row['reported_us']:.0f}",
            ]
        )
    return table(head, cells)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loop", choices=LOOPS, action="append", help="default: all")
    parser.add_argument("--only", choices=ROWS, action="append", help="default: all")
    parser.add_argument("--base", choices=ROWS, default=ROWS[0], help="default: nothing")
    parser.add_argument("--pairs", type=int, default=4, help="of processes for a row")
    parser.add_argument("--blocks", type=int, default=20, help="timed blocks in a process")
    parser.add_argument("--steps", type=int, default=200, help="steps in a block")
    parser.add_argument("--child", default="", help="train in this process, as this row does")
    parser.add_argument("--place", type=Path, default=None, help="where a child writes its run")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.child:
        if options.child == ROWS[3]:
            _deafen()
        own = _standing_in(options.child, options.place)
        watch = Stopwatch(PipeTurns(over=True), 0, options.blocks, options.steps)
        train(options.loop[0], watch, own)
        print(MARK + json.dumps([asdict(cost) for cost in watch.costs]), flush=True)
        return
    rows: list[dict[str, object]] = []
    for name in options.loop or LOOPS:
        for row in options.only or ROWS[:3]:
            rows.append(measured(name, row, options))
            print(shown(rows[-1:]), flush=True)
    print(f"{options.pairs} pairs of {options.blocks} blocks of {options.steps}; {machine_line()}")
    print(shown(rows))
    write_json(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
