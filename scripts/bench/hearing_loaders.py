"""Cost of hearing a `DataLoader` that nobody has wrapped: blocks in turns in one process.

    python -m scripts.bench.hearing_loaders [--blocks 40] [--json PATH]

From Python 3.12 on.  A block fetches so many batches that cost next to nothing, by the training
thread's CPU time: with nothing that listens, with functions that do nothing, and with ours.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from scripts.bench.harness import estimate, machine_line, table, write_json
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.loop.phase_contexts import PhaseContexts
from trainperf.plugins.outside_loader import LoaderCalls
from trainperf.plugins.outside_waits import BatchWaits
from trainperf.recording.guard import Guard
from trainperf.recording.probes.selection import ProbeSet
from trainperf.recording.recorder import Recorder


BATCHES = 1000
LISTENERS = ("functions that do nothing", "ours")


def fetched_us(waits: BatchWaits) -> float:
    """Microseconds that one batch takes, over a block."""
    rows = [torch.zeros(4)] * BATCHES
    batches = iter(DataLoader(rows, batch_size=1, collate_fn=lambda rows: rows[0]))  # type: ignore[arg-type]  # rows are enough
    begun = time.thread_time_ns()
    for _ in batches:
        waits.end()
    return (time.thread_time_ns() - begun) / BATCHES / 1e3


def added_us(blocks: int) -> dict[str, list[float]]:
    """What each listener adds to a batch, block by block.

    Raises:
        RuntimeError: Python does not tell of loaders, or our own functions have failed.
    """
    guard, recorder = Guard(), Recorder(monotonic_ns)
    waits = BatchWaits(recorder, PhaseContexts(recorder, guard, ProbeSet()))
    waits.begin_step()
    ours = guard.hook("loaders", waits.begins), guard.hook("loaders", waits.ends)
    added: dict[str, list[float]] = {name: [] for name in LISTENERS}
    for _ in range(blocks):
        alone_us = fetched_us(waits)
        for name, functions in zip(LISTENERS, ((_nothing, _nothing), ours), strict=True):
            added[name].append(_heard_us(waits, functions) - alone_us)
    if guard.faults:
        raise RuntimeError(guard.faults)
    return added


def _heard_us(waits: BatchWaits, functions: tuple[Callable[..., object], ...]) -> float:
    calls = LoaderCalls(*functions)
    if calls.tool is None:
        raise RuntimeError("Python tells of no loader here: it takes 3.12")
    try:
        return fetched_us(waits)
    finally:
        calls.stop()


def _nothing(*_: object) -> None:
    pass


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=40, help="of each kind")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = {name: asdict(estimate(added)) for name, added in added_us(options.blocks).items()}
    cells = [
        [name, f"{row['median']:+.2f}", f"{row['low']:+.2f} to {row['high']:+.2f}"]
        for name, row in rows.items()
    ]
    print(f"{options.blocks} blocks of {BATCHES} batches; {machine_line()}")
    print(table(["listening", "µs a batch", "interval"], cells))
    write_json(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
