"""Two ranks that train under DDP in a plain loop: what each of them is given to do.

Loads no Lightning, because every rank is a process of its own that has to start.
"""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from faults.stand_in import compute
from trainperf.loop import LoopMonitor


EachRank = tuple[float, float]
"""Milliseconds, one figure a rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A fit of two ranks.  They sleep where a device would work: there are but two cores."""

    data_ms: EachRank = (0.0, 0.0)
    """To make a batch."""
    forward_ms: EachRank = (6.0, 6.0)
    """In the forward of every micro-batch."""
    layers: int = 2
    width: int = 64
    steps: int = 60
    micro_batches: int = 1
    no_sync: bool = True
    """Whether only the last micro-batch of a step reduces gradients."""
    ddp: dict[str, Any] = field(default_factory=dict)


def train_ranks(out: Path, plan: Plan) -> None:
    """Both ranks, in processes of their own; they leave one run below *out*."""
    out.mkdir(parents=True, exist_ok=True)
    # Torch is imported once, in a process that every rank is forked from.
    multiprocessing.get_context("forkserver").set_forkserver_preload(["trainperf.loop"])
    mp.start_processes(_train, args=(out, plan), nprocs=2, start_method="forkserver")


def _train(rank: int, out: Path, plan: Plan) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(out / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    layers = [torch.nn.Linear(plan.width, plan.width) for _ in range(plan.layers)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), **plan.ddp)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, fused=True)
    with LoopMonitor(out / "runs", report=False).watch(model, optimizer) as monitor:
        for number, batch in enumerate(monitor.batches(_batches(plan, plan.data_ms[rank])), 1):
            last = number % plan.micro_batches == 0
            with _held_back(plan, model, last=last):
                with monitor.phase("forward"):
                    loss = model(batch).square().mean()
                    compute(plan.forward_ms[rank] / 1e3)
                with monitor.phase("backward"):
                    loss.backward()
            if last:
                with monitor.phase("optimizer"):
                    optimizer.step()
                    optimizer.zero_grad()
                monitor.end_step(loss)
    dist.destroy_process_group()


def _batches(plan: Plan, sleep_ms: float) -> Iterator[torch.Tensor]:
    batch = torch.ones(8, plan.width)
    for _ in range(plan.steps * plan.micro_batches):
        if sleep_ms:  # a sleep of nothing gives the core away
            time.sleep(sleep_ms / 1e3)
        yield batch


def _held_back(
    plan: Plan, model: DistributedDataParallel, *, last: bool
) -> AbstractContextManager[None]:
    return nullcontext() if last or not plan.no_sync else model.no_sync()
