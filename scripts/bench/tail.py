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
runs no Python, and one that reads the clock.  Passes in which the probe looks something up are
rare: what they take beyond the ordinary ones around them is taken from one module by itself, and
spread over all passes.
"""

import argparse
import random
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

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
"""Passes before the first that counts: DDP rebuilds its buckets, the last parameter is learnt."""

BATCHES = 40
"""Into which the rounds are cut: a difference for each, and the interval from them."""

PASSES = 2048
"""In which look-ups are counted: more of them than in as many later ones."""

BARE = "bare"
ADDED = ("nothing", "a hook without Python", "a hook that reads the clock", "the probe")
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
    """With the look-ups."""
    look_ups_us: float
    """Of it: all look-ups, spread over all passes."""


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
            (self.last,) = probe._lasts  # noqa: SLF001 nothing else tells when a look-up is due
        hooks = {
            "a hook without Python": deque[object](maxlen=0).append,
            "a hook that reads the clock": self._read_clock,
        }
        if added in hooks:
            last = next(self.model.parameters())
            last.register_post_accumulate_grad_hook(hooks[added])  # type: ignore[no-untyped-call]
        self.monitor.recorder.boundary()  # one long step: only the probe's own cost is asked
        self._warm_up()

    def _warm_up(self) -> None:
        for _ in range(WARM):
            self.backward_us()

    def _read_clock(self, _: object) -> None:
        self.ready_ns = time.perf_counter_ns()

    def backward_us(self) -> float:
        """CPU time of the training thread in a backward and after it."""
        ends, loss = self.ends, self.module(self.batch).sum()
        begun_ns = time.thread_time_ns()
        loss.backward()
        ends()
        return (time.thread_time_ns() - begun_ns) / 1e3

    def due(self) -> str:
        """What is looked up in the next pass; empty in an ordinary one."""
        if self.added != PROBE or self.last.left:
            return ""
        # The pass before a look-up plans it.
        return "learns" if self.last._learns else "looks" if self.last._checks else "plans"  # noqa: SLF001

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
    """Rounds of all copies, bare and then with what is added, in ordinary passes; the look-ups."""
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
    look_ups_us = _look_ups_us(shape)
    rows = []
    for added in ADDED:
        rare_us = look_ups_us if added == PROBE else 0.0
        rows.append(
            TailRow(
                shape=shape,
                added=added,
                backward_us=float(np.median(before)),
                added_us=estimate((gained[added] - gained[BARE] + rare_us).tolist()),
                look_ups_us=rare_us,
            )
        )
    return rows


def _rounds(every: Sequence[Trained], seconds: float) -> list[Spent]:
    """Ordinary passes of all, in an order that is drawn for every round: medians of batches."""
    spent: list[list[float]] = [[] for _ in every]
    draw, order = random.Random(0), list(range(len(every)))  # noqa: S311 an order
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        draw.shuffle(order)
        for place in order:
            for turn in range(TURN):
                ordinary = not every[place].due()
                spent_us = every[place].backward_us()
                if ordinary and turn:  # the first finds the caches of another module
                    spent[place].append(spent_us)
    return [
        np.asarray([np.median(part) for part in np.array_split(np.asarray(of_one), BATCHES)])
        for of_one in spent
    ]


def _look_ups_us(shape: str) -> float:
    """What look-ups take beyond ordinary passes: medians of each kind, as often as it comes."""
    module = Trained(shape)
    module.add(PROBE)
    kinds: dict[str, list[float]] = {}
    recent: deque[float] = deque([module.backward_us() for _ in range(15)], maxlen=15)
    for _ in range(PASSES):
        kind, spent_us = module.due(), module.backward_us()
        if kind:
            kinds.setdefault(kind, []).append(spent_us - median(recent))
        else:
            recent.append(spent_us)
    module.finish()
    return sum(len(extra) * max(0.0, median(extra)) for extra in kinds.values()) / PASSES


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
    head = ["model", "backward µs", "added", "added µs", "95 % CI", "of it look-ups"]
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
        f"{row.look_ups_us:.2f}" if row.added == PROBE else "",
    ]


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
