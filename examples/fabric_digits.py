"""A digit classifier in a loop of one's own, in the style of Fabric's `image_classifier`."""

import torch
from lightning.fabric import Fabric
from torch import nn, optim
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from trainperf.loop import LoopMonitor  # trainperf


class Net(nn.Module):
    """Two convolutions and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 2)
        self.conv2 = nn.Conv2d(8, 16, 3, 2)
        self.fc = nn.Linear(16 * 6 * 6, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the digits."""
        x = functional.relu(self.conv1(x))
        x = functional.relu(self.conv2(x))
        return functional.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


def main() -> None:
    """Train two epochs on noise."""
    fabric = Fabric(accelerator="auto", devices=1)
    fabric.launch()
    fabric.seed_everything(0)
    data = TensorDataset(torch.randn(960, 1, 28, 28), torch.randint(0, 10, (960,)))
    train_loader = fabric.setup_dataloaders(DataLoader(data, batch_size=32, shuffle=True))
    model = Net()
    model, optimizer = fabric.setup(model, optim.Adadelta(model.parameters(), lr=1.0))

    with LoopMonitor("runs/fabric").watch(model, optimizer) as monitor:  # trainperf
        for _ in range(2):
            model.train()
            for data, target in monitor.batches(train_loader):  # trainperf
                with monitor.phase("forward"):  # trainperf
                    loss = functional.nll_loss(model(data), target)
                with monitor.phase("backward"):  # trainperf
                    fabric.backward(loss)
                with monitor.phase("optimizer"):  # trainperf
                    optimizer.step()
                    optimizer.zero_grad()
                monitor.end_step(loss)  # trainperf


if __name__ == "__main__":
    main()
