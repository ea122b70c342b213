"""A digit classifier around a DeepSpeed engine, in the style of DeepSpeedExamples' `cifar`."""

import deepspeed
import torch
from torch import nn

from trainperf.loop import LoopMonitor  # trainperf


CONFIG = {
    "train_batch_size": 32,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}


def main() -> None:
    """Train two epochs on noise."""
    torch.manual_seed(0)
    dataset = torch.utils.data.TensorDataset(torch.randn(960, 784), torch.randint(0, 10, (960,)))
    net = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    model_engine, _, trainloader, _ = deepspeed.initialize(
        model=net, model_parameters=net.parameters(), training_data=dataset, config=CONFIG
    )
    criterion = nn.CrossEntropyLoss()

    with LoopMonitor("runs/deepspeed").watch(model_engine) as monitor:  # trainperf
        for _ in range(2):
            for data in monitor.batches(trainloader):  # trainperf
                with monitor.phase("h2d"):  # trainperf
                    inputs, labels = (each.to(model_engine.device) for each in data)
                with monitor.phase("forward"):  # trainperf
                    loss = criterion(model_engine(inputs), labels)
                with monitor.phase("backward"):  # trainperf
                    model_engine.backward(loss)
                update = model_engine.is_gradient_accumulation_boundary()  # trainperf
                with monitor.phase("optimizer"):  # trainperf
                    model_engine.step()
                if update:  # trainperf
                    monitor.end_step(loss)  # trainperf


if __name__ == "__main__":
    main()
