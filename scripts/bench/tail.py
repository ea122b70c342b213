"""Bench of the all-reduce tail's host cost: DDP modules take turns, step by step.

    python -m scripts.bench.tail [--seconds N] [--json FILE]

One rank in one process, so that nobody waits for anybody; a communication hook answers at once, as
the change to a thread of gloo and back would be the noise of every step.  Timed is backward and
the probe's call after it, through the guard as in a loop, by the CPU time of the training thread.

Fifteen copies of a module train in turns of eight passes, in an order that is drawn anew for
every round: first all of them bare, then with what is `ADDED`, each to three of them, and with
nothing the last three.  A row shows by how much a backward takes longer than before, less what it
does with nothing.  So it holds neither where a module lies in memory nor what the machine does over
more than a round.

What the probe cannot do without is measured beside it: a hook of torch's that does nothing and
runs no Python, and one that has the autograd engine read the clock when the graph is computed.
"""

import argparse
import random
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.nn.parallel import DistributedDataParallel

from scripts.bench.harness import PairedEstimate, estimate, machine_line, table, write_json
from trainperf.core.steps.records import RunInfo
from trainperf.recording.monitor import Monitor, RunParts
from trainperf.recording.probes.ddp import TailProbe


TARGET_US = 3.0

SHAPES = {"4 layers of 8": (4, 8), "24 layers of 16": (24, 16)}
"""Layers, and their width: 8 parameters and 48."""

COPIES = 3
"""Modules of each kind."""

TURN = 8
"""Passes of a module in a row: as in a loop of its own."""

WARM = 5
"""Passes before the first that counts: DDP rebuilds its buckets."""

BATCHES = 40
"""Into which the rounds are cut: a difference for each, and the interval from them."""

BARE = "bare"
ADDED = (
    "nothing",
    "a hook without Python",
    "a hook that has the engine read the clock",
    "the probe",
)
"""To a DDP module; the first is another one without anything: what a row may be off by."""
PROBE = ADDED[-1]

Spent = npt.NDArray[np.float64]
"""Of one module: the median of each batch of rounds, in µs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRow:
    """What is added to one shape of model, and what it costs."""

    shape: str
    added: str
    backward_us: float
    """Of a bare module."""
    added_us: PairedEstimate


class Trained:
    """A DDP module, bare until one of `ADDED` is added."""

    def __init__(self, shape: str) -> None:
        layers, width = SHAPES[shape]
        self.model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)])
        self.module = DistributedDataParallel(self.model)
        self.module.register_comm_hook(None, noop_hook)
        self.batch = torch.ones(16, width)
        self.ends: Callable[[], object] = _nothing
        self.added = BARE
        self.monitor = Monitor()
        self._warm_up()

    def add(self, added: str) -> None:
        """From now on train with it."""
        self.added = added
        probe = TailProbe([self.module])
        self.monitor.start(RunParts(info=RunInfo(), probes=[probe] if added == PROBE else []))
        if added == PROBE:
            self.ends = probe.ending(self.monitor.guard)
        queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001 as the probe
        hooks: dict[str, Callable[[object], object]] = {
            "a hook without Python": deque[object](maxlen=0).append,
            "a hook that has the engine read the clock": lambda _: queue(self._read_clock),
        }
        if added in hooks:
            last = next(self.model.parameters())
            last.register_post_accumulate_grad_hook(hooks[added])  # type: ignore[no-untyped-call]
        self.monitor.recorder.boundary()  # one long step: only the probe's own cost is asked
        self._warm_up()

    def _warm_up(self) -> None:
        for _ in range(WARM):
            self.backward_us()

    def _read_clock(self) -> None:
        self.ready_ns = time.perf_counter_ns()

    def backward_us(self) -> float:
        """CPU time of the training thread in a backward and after it."""
        ends, loss = self.ends, self.module(self.batch).sum()
        begun_ns = time.thread_time_ns()
        loss.backward()
        ends()
        return (time.thread_time_ns() - begun_ns) / 1e3

    def finish(self) -> None:
        """End the fit.

        Raises:
            RuntimeError: The probe was switched off.
        """
        self.monitor.micro_batch(None, None, complete=True)
        self.monitor.finish("finished")
        if self.monitor.guard.faults:
            raise RuntimeError(f"the probe failed: {self.monitor.guard.faults}")


def measure(shape: str, seconds: float) -> list[TailRow]:
    """Rounds of all copies, bare and then with what is added."""
    kinds = [added for _ in range(COPIES) for added in (BARE, *ADDED)]
    every = [Trained(shape) for _ in kinds]
    before = _rounds(every, seconds / 2)
    for each, added in zip(every, kinds, strict=True):
        each.add(added)
    after = _rounds(every, seconds / 2)
    for each in every:
        each.finish()
    gained = {
        kind: np.mean([a - b for a, b, k in zip(after, before, kinds, strict=True) if k == kind], 0)
        for kind in (BARE, *ADDED)
    }
    return [
        TailRow(
            shape=shape,
            added=added,
            backward_us=float(np.median(before)),
            added_us=estimate((gained[added] - gained[BARE]).tolist()),
        )
        for added in ADDED
    ]


def _rounds(every: Sequence[Trained], seconds: float) -> list[Spent]:
    """Passes of all, in an order that is drawn for every round: medians of batches."""
    spent: list[list[float]] = [[] for _ in every]
    draw, order = random.Random(0), list(range(len(every)))  # noqa: S311 an order
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        draw.shuffle(order)
        for place in order:
            for turn in range(TURN):
                spent_us = every[place].backward_us()
                if turn:  # the first finds the caches of another module
                    spent[place].append(spent_us)
    return [
        np.asarray([np.median(part) for part in np.array_split(np.asarray(of_one), BATCHES)])
        for of_one in spent
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
    head = ["model", "backward µs", "added", "added µs", "95 % CI"]
    print(table(head, [_cells(row) for row in rows]))
    print(f"target for the probe: at most {TARGET_US} µs per step")
    write_json(options.json, {"rows": [asdict(row) for row in rows]})


def _cells(row: TailRow) -> list[str]:
    added = row.added_us
    return [
        row.shape,
        f"{row.backward_us:.0f}",
        row.added,
        f"{added.median:.2f}",
        f"{added.low:.2f} to {added.high:.2f}",
    ]


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
