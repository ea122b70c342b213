"""Lion as it is copied from repository to repository: weight by weight, operator by operator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from faults.base import script
from faults.operators import ready
from faults.repositories import nano


class Lion(torch.optim.Optimizer):
    """The sign of a mean of gradients, for each weight by itself or for all in turn.

    Args:
        weights: What it updates.
        together: Whether each operator takes the whole list.
    """

    def __init__(self, weights: Any, *, together: bool) -> None:
        super().__init__(weights, {"lr": 1e-4, "betas": (0.9, 0.99), "decay": 0.01})
        self._together = together

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update."""
        del closure
        for group in self.param_groups:
            rate, (first, second), decay = group["lr"], group["betas"], group["decay"]
            weights = [weight for weight in group["params"] if weight.grad is not None]
            for weight in weights:
                if "mean" not in self.state[weight]:
                    self.state[weight]["mean"] = torch.zeros_like(weight)
            if self._together:
                self._all(weights, rate, first, second, decay)
                continue
            for weight in weights:
                gradient, mean = weight.grad, self.state[weight]["mean"]
                weight.data.mul_(1 - rate * decay)
                turn = mean.clone().mul_(first).add(gradient, alpha=1 - first).sign_()
                weight.add_(turn, alpha=-rate)
                mean.mul_(second).add_(gradient, alpha=1 - second)

    def _all(
        self, weights: list[Tensor], rate: float, first: float, second: float, decay: float
    ) -> None:
        gradients: Any = [weight.grad for weight in weights]
        means = [self.state[weight]["mean"] for weight in weights]
        torch._foreach_mul_(weights, 1 - rate * decay)
        turns = torch._foreach_lerp(means, gradients, 1 - first)
        torch._foreach_sign_(turns)
        torch._foreach_add_(weights, turns, alpha=-rate)
        torch._foreach_lerp_(means, gradients, 1 - second)


class Residual(nn.Module):
    """A block of a network for tables."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, rows: Tensor) -> Tensor:
        """The same shape."""
        changed: Tensor = rows + self.narrow(self.wide(self.norm(rows)).relu())
        return changed


@script("optimizer_not_fused")
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Residual(48) for _ in range(24)), nn.Linear(48, 10))
    nano(out, model, ready(50, 48, size=48), optimizer=lambda own: Lion(own, together=fixed))
