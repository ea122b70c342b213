"""A digit classifier on two workers of Ray Train, in the style of its own quickstart.

python examples/ray_digits.py
"""

from pathlib import Path

import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainperf.loop import LoopMonitor  # trainperf


def train_on_worker() -> None:
    """Train two epochs on noise; rank 0 prints the report of all ranks."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(1920, 784), torch.randint(0, 10, (1920,)))
    loader = prepare_data_loader(DataLoader(data, batch_size=32, shuffle=True))
    net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    model = prepare_model(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    with LoopMonitor().watch(model, optimizer) as monitor:  # trainperf
        for epoch in range(2):
            loader.sampler.set_epoch(epoch)
            for inputs, labels in monitor.batches(loader):  # trainperf
                with monitor.phase("forward"):  # trainperf
                    loss = criterion(model(inputs), labels)
                with monitor.phase("backward"):  # trainperf
                    loss.backward()
                with monitor.phase("optimizer"):  # trainperf
                    optimizer.step()
                    optimizer.zero_grad()
                monitor.end_step(loss)  # trainperf
            ray.train.report({"loss": loss.item()})


def main() -> None:
    """Start Ray on this machine for as long as it takes."""
    ray.init(num_cpus=2, include_dashboard=False)
    trainer = TorchTrainer(
        train_on_worker,
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(storage_path=str(Path("runs").resolve()), name="digits"),
    )
    trainer.fit()
    ray.shutdown()


if __name__ == "__main__":
    main()
