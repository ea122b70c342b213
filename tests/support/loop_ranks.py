"""What each of two ranks runs: a plain loop under DDP, in which rank 1 is late."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from support.loops import Loader, Sleeper, learn
from torch.nn.parallel import DistributedDataParallel

from trainperf.loop import LoopMonitor
from trainperf.recording.profiling.options import ScheduledProfile


LATE_MS = 20.0


@contextmanager
def one_of_two(rank: int, base: Path) -> Iterator[None]:
    """The process group of the two ranks, on one thread each."""
    store = dist.FileStore(str(base / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.set_num_threads(1)
    yield
    dist.destroy_process_group()


def model_of(layers: int) -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    """So many layers under DDP, and what steps them."""
    model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(4, 4)] * layers))
    return model, torch.optim.SGD(model.parameters(), 0.01)


def late_steps(
    monitor: LoopMonitor,
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    steps: int,
    late_ms: float,
) -> None:
    """Steps with a sleep of *late_ms* in every forward."""
    sleeper = Sleeper()
    for batch in monitor.batches(Loader(sleeper, steps)):
        with monitor.phase("forward"):
            loss = model(batch["x"]).square().mean()
            sleeper.sleep("forward", late_ms)
        learn(monitor, optimizer, loss)


def train_traced(rank: int, base: Path) -> None:
    """One rank of two under DDP; both trace the same steps, and rank 1 is late."""
    with one_of_two(rank, base):
        model, optimizer = model_of(1)
        profile = ScheduledProfile(wait=3, warmup=1, active=3, ranks=(0, 1))
        monitor = LoopMonitor(base / "runs", report=False, profile=profile).watch(model, optimizer)
        with monitor:
            late_steps(monitor, model, optimizer, 12, LATE_MS * rank)


def train_on_one_cpu(rank: int, base: Path, ranks: int) -> None:
    """One of several ranks that may all run on the same CPU only, each with its own model."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(base / "store"), ranks), rank=rank, world_size=ranks
    )
    torch.set_num_threads(1)
    model = torch.nn.Linear(512, 512)
    monitor = LoopMonitor(base / "runs", report=False).watch(model)
    for batch in monitor.batches([torch.ones(256, 512)] * 150):
        model(batch).square().mean().backward()
        monitor.end_step()
    monitor.close()
    dist.destroy_process_group()
