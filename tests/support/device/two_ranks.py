"""What each of two ranks does in the tests of collectives: in processes of their own."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from support.device import collectives
from support.device.build import extension
from support.device.frontend import NAME, attach
from support.device.plants import (
    counted_synchronisations,
    no_synchronisation,
    recorded_spans,
    slow_operator,
    unplant,
    work,
)
from support.fits import read
from support.gpu import DeviceWork
from support.loops import learn
from torch import nn

from trainperf.loop import LoopMonitor


ALLREDUCE = f"{collectives.BACKEND}::allreduce"

MEASURED, SETTLED, REDUCE_MS, LATE_MS = 24, 4, 20.0, 150.0
"""Steps, those until DDP has settled, the least that a reduction takes, the second rank's delay."""

LOOPS = PLAIN, LIGHTNING, HUGGING_FACE = "plain", "lightning", "hugging face"
"""Folders of their runs."""

Told = dict[str, object]


def start(rank: int, root: Path, port: int) -> None:
    """Join the other rank, do what it does as well, and write what there is to tell."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    attach()
    collectives.register()
    dist.init_process_group(collectives.BACKEND, rank=rank, world_size=2)
    told = reduce_behind_work(rank) | train(rank)
    for place in range(2):
        slow_operator(ALLREDUCE, REDUCE_MS, place)
    with counted_synchronisations() as counts:
        train_measured(rank, root / PLAIN, f"{NAME}:0", work)
    train_lightning(rank, root / LIGHTNING)
    train_hugging_face(rank, root / HUGGING_FACE)
    unplant()
    torch.save({**told, "waits": counts}, root / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def reduce_behind_work(rank: int) -> Told:
    """Reduce what the device has not computed yet, without a wait."""
    slow_operator("aten::mul", 100.0)
    tensor = torch.ones(3, device=NAME) * (rank + 1)
    with no_synchronisation():
        work = dist.all_reduce(tensor, async_op=True)
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


def train_lightning(rank: int, root: Path) -> None:
    """Train by Lightning in half precision, each rank on a device of its own."""
    from lightning.pytorch.plugins import MixedPrecision
    from support.device.lightning import on_device
    from support.device.trainings import Classifier, batches
    from support.fits import trainer as lightning_trainer

    from trainperf.lightning import TrainPerf

    os.environ["LOCAL_RANK"] = str(rank)
    model = Classifier()
    model.in_forward = partial(work, LATE_MS * rank, rank)
    ours = TrainPerf(report=False, dirpath=str(root))
    precision = MixedPrecision("16-mixed", NAME, torch.amp.GradScaler(NAME))
    trainer = lightning_trainer(root, ours, plugins=[precision], **on_device(ranks=2))
    trainer.fit(model, batches(8 * MEASURED))


def train_hugging_face(rank: int, root: Path) -> None:
    """Train by a Trainer that takes the device for a CPU, for Accelerate knows no ranks of it."""
    from support.hugging_face import Rows, Tiny, quiet
    from support.hugging_face import trainer as hugging_face_trainer

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ["ACCELERATE_TORCH_DEVICE"] = f"{NAME}:{rank}"
    model, rows = Tiny(partial(work, LATE_MS * rank, rank)), Rows(4 * MEASURED)
    ours = quiet(dirpath=str(root))
    hugging_face_trainer(
        root, ours, model=model, rows=rows, max_steps=MEASURED, ddp_backend="gloo"
    ).train()


def start_nccl(rank: int, root: Path, port: int) -> None:
    """Do the last of it on GPUs: as many ranks as there are, two at most."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    size = min(2, torch.cuda.device_count())
    dist.init_process_group("nccl", rank=rank, world_size=size)
    train_measured(rank, root, f"cuda:{rank}", DeviceWork().queue)
    dist.destroy_process_group()


def train_measured(rank: int, root: Path, device: str, queue_work: Callable[[float], None]) -> None:
    """Train under a monitor, the device of the second rank slower."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    kind = device.partition(":")[0]
    scaler = torch.amp.GradScaler(kind)
    monitor = LoopMonitor(root / "run", report=False).watch(model, optimizer, scaler)
    with monitor:
        for number, inputs in enumerate(monitor.batches([torch.ones(2, 4)] * MEASURED)):
            if number == SETTLED and kind == NAME:  # DDP builds its buckets anew before
                extension().reset_sync_counts()
            with monitor.phase("h2d"):
                rows = inputs.to(device, non_blocking=True)
            with monitor.phase("forward"), torch.autocast(kind, dtype=torch.float16):
                queue_work(LATE_MS * rank)
                loss = model(rows).square().mean()
            learn(monitor, optimizer, loss, scaler)
            torch.accelerator.synchronize()  # so that what a rank waits for is seen in its step


def run_of(root: Path) -> Path:
    """The directory that the ranks have left."""
    (run,) = {path.parent for path in root.rglob("steps-rank*.jsonl")}
    return run


def tails_ms(root: Path, ranks: int) -> list[float]:
    """The median tail of each rank, once DDP has settled; nothing was switched off."""
    each = [read(run_of(root), rank) for rank in range(ranks)]
    assert all(ran.totals is not None and ran.totals.faults == {} for ran in each)
    known = [ran.fact("tail_ns")[SETTLED:] for ran in each]
    return [median(tail for tail in tails if tail is not None) / 1e6 for tails in known]
