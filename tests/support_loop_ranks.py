"""What each of two ranks runs: a plain loop under DDP, in which rank 1 is late."""

from pathlib import Path

import torch
import torch.distributed as dist
from support_loops import Loader, Sleeper
from torch.nn.parallel import DistributedDataParallel

from trainperf.loop import LoopMonitor


STEPS = 30
LATE_MS = 20.0


def train(rank: int, base: Path) -> None:
    """One rank of two; rank 1 sleeps in every forward."""
    store = dist.FileStore(str(base / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.set_num_threads(1)
    sleeper = Sleeper()
    model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(4, 4)] * 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with LoopMonitor(base / "runs", report=False).watch(model, optimizer) as monitor:
        for batch in monitor.batches(Loader(sleeper, STEPS)):
            with monitor.phase("forward"):
                loss = model(batch["x"]).square().mean()
                sleeper.sleep("forward", LATE_MS * rank)
            with monitor.phase("backward"):
                loss.backward()
            with monitor.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            monitor.end_step(loss)
    dist.destroy_process_group()
