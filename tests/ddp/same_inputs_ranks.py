"""One of two ranks under DDP in plain loops that validate without the wrapper.

In some each rank has its part of the samples, in others every rank has all of them.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from support.loops import learn
from support.outside import hearing
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from trainperf.core.launch_environment import LaunchOptions
from trainperf.loop import LoopMonitor


EPOCHS = 2

Batches = DataLoader[tuple[Tensor, ...]]


def batches(samples: int, *, shuffle: bool, divided: bool) -> Batches:
    """Of four samples each; shuffled alike on both ranks where they are not divided."""
    data = TensorDataset(torch.randn(samples, 6))
    sampler = DistributedSampler(data, shuffle=shuffle) if divided else None
    return DataLoader(data, 4, sampler=sampler, shuffle=shuffle and not divided)


def validate(model: nn.Module, held_out: Batches) -> None:
    """Go through all that this rank has."""
    model.eval()
    with torch.no_grad():
        for (rows,) in held_out:
            model(rows)
    model.train()


def with_monitor(
    path: Path, model: DistributedDataParallel, training: Batches, held_out: Batches
) -> None:
    """A loop that names its phases."""
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with LoopMonitor(path, report=False).watch(model, optimizer) as monitor:
        for _ in range(EPOCHS):
            for (rows,) in monitor.batches(training):
                with monitor.phase("forward"):
                    loss = model(rows).square().mean()
                learn(monitor, optimizer, loss)
            with monitor.phase("validation"):
                validate(model.module, held_out)


def from_outside(
    path: Path, model: DistributedDataParallel, training: Batches, held_out: Batches
) -> None:
    """A loop that knows nothing of us."""
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with hearing(LaunchOptions(dirpath=str(path))):
        for _ in range(EPOCHS):
            for (rows,) in training:
                model(rows).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            validate(model.module, held_out)


LOOPS: dict[str, Callable[[Path, DistributedDataParallel, Batches, Batches], None]] = {
    "monitor": with_monitor,
    "outside": from_outside,
}


def main(root: Path) -> None:
    """All loops, in the same order on both ranks."""
    dist.init_process_group("gloo")
    for name, loop in LOOPS.items():
        for what, parts in (
            ("divided", (True, True)),
            ("validation", (True, False)),
            ("training", (False, True)),
        ):
            torch.manual_seed(0)
            model = DistributedDataParallel(nn.Linear(6, 6))
            training = batches(64, shuffle=True, divided=parts[0])
            held_out = batches(24, shuffle=False, divided=parts[1])
            loop(root / f"{name}-{what}", model, training, held_out)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
