"""A digit classifier on several ranks, in the style of PyTorch's `ddp` tutorial.

torchrun --nproc-per-node 2 examples/ddp_digits.py
"""

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from trainperf.loop import LoopMonitor  # trainperf


def main() -> None:
    """Train two epochs on noise; rank 0 prints the report of all ranks."""
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(1920, 784), torch.randint(0, 10, (1920,)))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    with LoopMonitor("runs/ddp").watch(model, optimizer) as monitor:  # trainperf
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for inputs, labels in monitor.batches(loader):  # trainperf
                with monitor.phase("forward"):  # trainperf
                    loss = criterion(model(inputs), labels)
                with monitor.phase("backward"):  # trainperf
                    loss.backward()
                with monitor.phase("optimizer"):  # trainperf
                    optimizer.step()
                    optimizer.zero_grad()
                monitor.end_step(loss)  # trainperf
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
