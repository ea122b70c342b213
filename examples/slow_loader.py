"""A training whose batches are slow to make, and an option that mends it: what commands are for.

python examples/slow_loader.py
trainperf report runs/slow
trainperf try examples/slow_loader.py
trainperf prove examples/slow_loader.py "examples/slow_loader.py --num-workers 2"
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from trainperf.loop import LoopMonitor  # trainperf


class Noise(Dataset[tuple[torch.Tensor, int]]):
    """Pictures of noise, each of which takes a millisecond to read."""

    def __init__(self, number: int) -> None:
        self.pictures = torch.randn(number, 784)

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.001)
        return self.pictures[place], place % 10


def main() -> None:
    """Read the arguments and train an epoch."""
    parser = argparse.ArgumentParser(description="A training with a slow loader.")
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()

    torch.manual_seed(0)
    data = Noise(8 * args.steps)
    loader = DataLoader(data, batch_size=8, num_workers=args.num_workers)
    model = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    with LoopMonitor("runs/slow").watch(model, optimizer) as monitor:  # trainperf
        for inputs, labels in monitor.batches(loader):  # trainperf
            with monitor.phase("forward"):  # trainperf
                loss = nn.functional.cross_entropy(model(inputs), labels)
            with monitor.phase("backward"):  # trainperf
                loss.backward()
            with monitor.phase("optimizer"):  # trainperf
                optimizer.step()
                optimizer.zero_grad()
            monitor.end_step(loss)  # trainperf


if __name__ == "__main__":
    main()
