"""Two versions of a training step, timed in turns, and the batch size that is large enough."""

from collections.abc import Callable

import torch
from torch import nn

from trainperf.benchmark import compare, sweep


FEATURES = 256


def training_step(activation: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """A step of a model of its own; all versions begin with equal weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 512), activation, nn.Linear(512, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def step(batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def main() -> None:
    """Compare, then sweep."""
    versions = {"gelu": nn.GELU(), "gelu, tanh": nn.GELU(approximate="tanh")}
    steps = {name: training_step(activation) for name, activation in versions.items()}
    print(compare(steps, torch.randn(64, FEATURES)))
    print()

    results = sweep(
        steps["gelu"],
        lambda batch_size, _: torch.randn(batch_size, FEATURES),
        batch_sizes=[16, 64, 256],
        repeat=10,
    )
    print(results)


if __name__ == "__main__":
    main()
