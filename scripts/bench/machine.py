"""Bench of the process beside the loop: what it takes of a CPU, and whether the loop feels it.

    python -m scripts.bench.machine [--seconds 60] [--pairs 20] [--processes 0 500] [--json FILE]

Two tables.  What the process takes: its start, and its share of a CPU next to few and to many idle
processes (it looks at all of them now and then).  What the loop feels: blocks of a loop while the
process samples, and while it is stopped (SIGSTOP), in turns.  There is no NVML in it: on a GPU each
reading of a device comes on top, and the same limit holds for all of it.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import psutil
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
    table,
)
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.run_directory import machine_file
from trainperf.recording.machine.probe import EVERY_S, MachineProbe
from trainperf.recording.recorder import Recorder


PROMISED = 0.01
"""Of a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """What the process takes beside so many idle ones."""

    processes: int
    seconds: float
    start_cpu_s: float
    share: float
    """Of a CPU, after its start."""
    resident_bytes: int
    bytes_per_hour: float


@contextmanager
def beside() -> Iterator[tuple[MachineProbe, Path]]:
    """The process, as a fit starts it."""
    with tempfile.TemporaryDirectory() as folder:
        probe = MachineProbe(Path(folder), 0)
        probe.attach(Recorder(monotonic_ns))
        try:
            yield probe, machine_file(Path(folder), 0)
        finally:
            probe.detach()


@contextmanager
def idle(number: int) -> Iterator[None]:
    """Processes that only sleep."""
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(number)]  # noqa: S607 a tool of every system
    try:
        yield
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


def cost(processes: int, seconds: float) -> CostRow:
    """Let it sample for so long, and read what the system says it took."""
    with idle(processes), beside() as (probe, path):
        if probe.child is None:
            raise RuntimeError("the process was not started")
        child = psutil.Process(probe.child.pid)
        while not path.exists() or path.stat().st_size == 0:
            time.sleep(0.05)
        time.sleep(EVERY_S / 2)
        times, size = child.cpu_times(), path.stat().st_size
        start_s, began = times.user + times.system, time.monotonic()
        time.sleep(seconds)
        times = child.cpu_times()
        took_s, elapsed_s = times.user + times.system - start_s, time.monotonic() - began
        return CostRow(
            processes=len(psutil.pids()),
            seconds=elapsed_s,
            start_cpu_s=start_s,
            share=took_s / elapsed_s,
            resident_bytes=child.memory_info().rss,
            bytes_per_hour=(path.stat().st_size - size) / elapsed_s * 3600,
        )


def felt(pairs: int, seconds: float) -> tuple[PairedEstimate, PairedEstimate]:
    """Wall time and thread CPU of a step, with the process over without it."""
    weight = torch.randn(128, 128) / 16

    def step() -> None:
        hidden = weight
        for _ in range(8):
            hidden = torch.tanh(hidden @ weight)

    with beside() as (probe, _):
        child = probe.child
        if child is None:
            raise RuntimeError("the process was not started")
        time.sleep(2 * EVERY_S)

        def after(signal_: signal.Signals) -> Cost:
            os.kill(child.pid, signal_)
            return cost_of(step, seconds)

        costs = in_turns(partial(after, signal.SIGCONT), partial(after, signal.SIGSTOP), pairs)
        os.kill(child.pid, signal.SIGCONT)
    return (
        estimate([own.wall_us / without.wall_us for own, without in costs]),
        estimate([own.thread_us / without.thread_us for own, without in costs]),
    )


def main() -> int:
    """Print the tables; 1 if it takes more than it may."""
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--block-s", type=float, default=2.0, help="seconds of a block")
    parser.add_argument("--processes", type=int, nargs="*", default=[0, 500])
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [cost(number, given.seconds) for number in given.processes]
    cells = [
        (
            f"{row.processes:,}",
            f"{row.start_cpu_s * 1e3:.0f} ms",
            f"{row.share:.2%}",
            f"{row.resident_bytes / 2**20:.0f} MiB",
            f"{row.bytes_per_hour / 2**10:,.0f} KiB",
        )
        for row in rows
    ]
    felt_rows = dict(zip(("wall", "thread CPU"), felt(given.pairs, given.block_s), strict=True))
    head = ("processes on the host", "start, CPU", "of a CPU", "resident", "file per hour")
    result = {"felt": {name: asdict(ratio) for name, ratio in felt_rows.items()}}
    publish(given.json, head, cells, {"rows": [asdict(row) for row in rows], **result})
    ratios = [[name, *spread(ratio, ".4f")] for name, ratio in felt_rows.items()]
    print(f"\n{table(('step', 'ratio', 'interval'), ratios)}")
    return 0 if all(row.share <= PROMISED for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
