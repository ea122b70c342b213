"""Pairs of ranks that train until what is planted in each holds them up: `ROOT PLANT …`.

Everything is imported once; each rank is a fork.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from support.ranks import free_port, launched
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from trainperf.loop import LoopMonitor


LASTS_S = 900.0
"""Longer than any test looks."""
AT = 20
"""Steps before it."""


class Rows(Dataset[torch.Tensor]):
    """Rows of noise, of which one may never come."""

    def __init__(self, plant: str) -> None:
        self.plant = plant

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.plant == "worker" and index == 4 * AT:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire(timeout=LASTS_S)  # nobody ends a worker whose rank was killed
        return torch.randn(8)


def evaluate(model: torch.nn.Module) -> None:
    """Batch after batch."""
    end = time.monotonic() + LASTS_S
    while time.monotonic() < end:
        model(torch.randn(256, 8))
        time.sleep(0.001)


def train(root: Path, plant: str) -> None:
    """Train, and come to it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.Linear(8, 8)
    ranks = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    workers = int(plant == "worker" and rank == 1)
    loader = DataLoader(Rows(plant if rank else ""), batch_size=4, num_workers=workers)
    monitor = LoopMonitor(root, hang_after_s=4.0, report=False, machine=False)
    monitor.watch(ranks, optimizer)
    for number, batch in enumerate(monitor.batches(loader)):
        if plant == "unequal" and rank == 0 and number == AT:
            break
        loss = ranks(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        monitor.end_step(loss)
        evaluates = ("both evaluate", "evaluation") if rank == 0 else ("both evaluate",)
        if number == AT and plant in evaluates:
            evaluate(model)
        elif number == AT and rank == 0 and plant == "checkpoint":
            with monitor.phase("checkpoint"):
                time.sleep(LASTS_S)
        elif number == AT and rank == 1 and plant == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
    monitor.close()
    dist.barrier()


def main(root: Path, *plants: str) -> None:
    """Each pair in a folder of its own, all at the same time."""
    for plant in plants:
        port = free_port()
        for rank in range(2):
            if os.fork() == 0:
                os.environ.update(launched(rank, port))
                train(root / plant, plant)
                return
    with suppress(ChildProcessError):
        while True:
            os.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
