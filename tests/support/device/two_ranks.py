"""What each of two ranks does in the tests of collectives: in processes of their own."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from support.device import collectives
from support.device.frontend import NAME, attach
from support.device.plants import (
    counted_synchronisations,
    no_synchronisation,
    recorded_spans,
    slow_operator,
    unplant,
)
from torch import nn


ALLREDUCE = f"{collectives.BACKEND}::allreduce"

Told = dict[str, object]


def start(rank: int, root: Path, port: int) -> None:
    """Join the other rank, do what it does as well, and write what there is to tell."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    attach()
    collectives.register()
    dist.init_process_group(collectives.BACKEND, rank=rank, world_size=2)
    torch.save(reduce_behind_work(rank) | train(rank), root / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def reduce_behind_work(rank: int) -> Told:
    """Reduce what the device has not computed yet, without a wait."""
    slow_operator("aten::mul", 100.0)
    tensor = torch.ones(3, device=NAME) * (rank + 1)
    with no_synchronisation():
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        early = work.is_completed()
        work.wait()
        doubled = tensor + tensor
    unplant()
    return {"early": early, "doubled": doubled.cpu()}


def train(rank: int) -> Told:
    """Take five steps of DDP, the last three of them watched."""
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1).to(NAME))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def steps(number: int) -> None:
        for _ in range(number):
            inputs = torch.full((2, 4), float(rank), device=NAME)
            model(inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    steps(2)  # DDP builds its buckets anew, with a copy to the host
    torch.accelerator.synchronize()
    with counted_synchronisations() as counts, recorded_spans() as spans:
        steps(3)
    weight = next(model.parameters()).detach().cpu()
    reduced = [span.stream for span in spans if span.name == ALLREDUCE]
    return {"weight": weight, "counts": counts, "streams": reduced}
