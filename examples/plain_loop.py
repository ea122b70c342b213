"""A digit classifier in a loop of one's own, in the style of PyTorch's `mnist` example."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainperf.loop import LoopMonitor  # trainperf


def main() -> None:
    """Train two epochs on noise."""
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.randn(960, 784), torch.randint(0, 10, (960,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    with LoopMonitor("runs/plain").watch(model, optimizer) as monitor:  # trainperf
        for _ in range(2):
            model.train()
            for batch in monitor.batches(loader):  # trainperf
                with monitor.phase("h2d"):  # trainperf
                    inputs, labels = (each.to(device) for each in batch)
                with monitor.phase("forward"):  # trainperf
                    loss = criterion(model(inputs), labels)
                with monitor.phase("backward"):  # trainperf
                    loss.backward()
                with monitor.phase("optimizer"):  # trainperf
                    optimizer.step()
                    optimizer.zero_grad()
                monitor.end_step(loss)  # trainperf


if __name__ == "__main__":
    main()
