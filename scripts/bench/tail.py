"""Bench of the all-reduce tail's host cost: DDP modules take turns, one of them with the probe.

    python -m scripts.bench.tail [--seconds N] [--json FILE]

One rank over gloo in one process, so that nobody waits for anybody.  Steps are forward, backward
and nothing else; the probe's calls around backward go through the guard, as in a loop.  A row shows
by how much a block's CPU time of the training thread differs, per step and in the median, from the
mean of the bare blocks right before and right after it: a machine that changes its speed evenly
changes no row.

What the probe cannot do without is measured beside it: a hook of torch's that does nothing and
runs no Python, and one that reads the clock.
"""

import argparse
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from scripts.bench.harness import PairedEstimate, estimate, machine_line, table, write_json
from trainperf.core.steps.records import RunInfo
from trainperf.recording.monitor import Monitor, RunParts
from trainperf.recording.probes.ddp import TailProbe
from trainperf.recording.probes.last_gradient import CHECK_EVERY


TARGET_US = 3.0

SHAPES = {"4 layers of 8": (4, 8), "24 layers of 128": (24, 128)}
"""Layers, and their width."""

STEPS = CHECK_EVERY
"""Of a block: the end of the graph is looked at once in each."""


ADDED = ("nothing", "a hook without Python", "a hook that reads the clock", "the probe")
"""To a DDP module; the first is another one without anything: what a row may be off by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRow:
    """What is added to one shape of model, and what it costs."""

    shape: str
    added: str
    step_us: float
    added_us: PairedEstimate


class Trained:
    """A DDP module with one of `ADDED`."""

    def __init__(self, layers: int, width: int, added: str) -> None:
        model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)])
        self.module = DistributedDataParallel(model)
        self.batch = torch.ones(16, width)
        self.monitor = Monitor()
        self.ends: Callable[[], object] = _nothing
        probe = TailProbe([self.module])
        probed = added == "the probe"
        self.monitor.start(RunParts(info=RunInfo(), probes=[probe] if probed else []))
        if probed:
            self.ends = probe.ending(self.monitor.guard)
        hooks = {
            "a hook without Python": deque[object](maxlen=0).append,
            "a hook that reads the clock": self._read_clock,
        }
        if added in hooks:
            last = next(model.parameters())
            last.register_post_accumulate_grad_hook(hooks[added])  # type: ignore[no-untyped-call]

    def _read_clock(self, _: object) -> None:
        self.ready_ns = time.perf_counter_ns()

    def block(self, steps: int) -> float:
        """CPU time of the training thread per step, in µs."""
        ends = self.ends
        self.monitor.recorder.boundary()  # one long step: only the probe's own cost is asked
        begun = time.thread_time_ns()
        for _ in range(steps):
            loss = self.module(self.batch).sum()
            loss.backward()
            ends()
        spent = time.thread_time_ns() - begun
        self.monitor.micro_batch(None, None, complete=True)
        return spent / steps / 1e3


def measure(shape: str, seconds: float) -> list[TailRow]:
    """A bare block before and after each of the others, for so long."""
    layers, width = SHAPES[shape]
    bare = Trained(layers, width, "bare")
    others = [Trained(layers, width, added) for added in ADDED]
    every = [bare, *others]
    for each in every:
        each.block(STEPS)  # DDP rebuilds its buckets, and the last parameter is learnt
    rows: list[list[float]] = []
    bare_us = [bare.block(STEPS)]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        row = []
        for each in others:
            spent = each.block(STEPS)
            bare_us.append(bare.block(STEPS))
            row.append(spent - (bare_us[-2] + bare_us[-1]) / 2)
        rows.append(row)
    for each in every:
        each.monitor.finish("finished")
        if each.monitor.guard.faults:
            raise RuntimeError(f"the probe failed: {each.monitor.guard.faults}")
    step_us = median(bare_us)
    return [
        TailRow(
            shape=shape,
            added=added,
            step_us=step_us,
            added_us=estimate([row[place] for row in rows]),
        )
        for place, added in enumerate(ADDED)
    ]


def main() -> None:
    """Print a row for every shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40, help="for each shape of model")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.NamedTemporaryFile() as file:
        dist.init_process_group("gloo", f"file://{file.name}", rank=0, world_size=1)
        rows = [row for shape in SHAPES for row in measure(shape, options.seconds)]
        dist.destroy_process_group()
    print(machine_line())
    head = ["model", "step µs", "added", "added µs", "95 % CI"]
    print(table(head, [_cells(row) for row in rows]))
    print(f"target for the probe: at most {TARGET_US} µs per step")
    write_json(options.json, {"rows": [asdict(row) for row in rows]})


def _cells(row: TailRow) -> list[str]:
    added = row.added_us
    return [
        row.shape,
        f"{row.step_us:.0f}",
        row.added,
        f"{added.median:.2f}",
        f"{added.low:.2f} to {added.high:.2f}",
    ]


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
