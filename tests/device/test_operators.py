"""What the device computes is what the CPU computes, and the host does not wait for it."""

import copy
from collections.abc import Callable

import pytest
import torch
from support.device.plants import no_synchronisation
from torch import nn
from torch.nn import functional


TOLERANCE = 1e-4


class Attention(nn.Module):
    """Causal self-attention over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        """Return the attended values."""
        query, key, value = self.project(sequence).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def sequence() -> torch.Tensor:
    """Two sequences of five vectors."""
    return torch.randn(2, 5, 16)


def images() -> torch.Tensor:
    """Three small pictures."""
    return torch.randn(3, 3, 12, 12)


def tokens() -> torch.Tensor:
    """Two sequences of words."""
    return torch.randint(0, 20, (2, 7))


Case = tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]

MODULES: dict[str, Case] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), sequence),
    "gelu": (lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), sequence),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        ),
        images,
    ),
    "strided": (lambda: nn.Conv2d(3, 6, 3, stride=2, groups=3, bias=False), images),
    "transposed": (lambda: nn.ConvTranspose2d(3, 6, 3, stride=2), images),
    "pooled": (lambda: nn.Sequential(nn.AdaptiveAvgPool2d(3), nn.AvgPool2d(2)), images),
    "embedding": (lambda: nn.Embedding(20, 8, padding_idx=0), tokens),
    "layer_norm": (lambda: nn.LayerNorm(16), sequence),
    "group_norm": (lambda: nn.GroupNorm(3, 3), images),
    "attention": (Attention, sequence),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
        sequence,
    ),
}


def trained(module: nn.Module, inputs: torch.Tensor, device: torch.device) -> list[torch.Tensor]:
    """Return output, gradients and buffers of one pass on *device*."""
    module, inputs = copy.deepcopy(module).to(device), inputs.to(device, copy=True)
    if inputs.is_floating_point():
        inputs.requires_grad_()
    output = module(inputs)
    weights = torch.linspace(-1, 1, output.numel()).view(output.shape).to(device)
    (output * weights).sum().backward()
    values = [output, *(weight.grad for weight in module.parameters()), *module.buffers()]
    if inputs.grad is not None:
        values.append(inputs.grad)
    return [value.detach().cpu() for value in values if value is not None]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_computes_what_it_computes_on_the_cpu(device: torch.device, name: str) -> None:
    """Output, gradients and buffers."""
    torch.manual_seed(0)
    make, inputs = MODULES[name]
    module, batch = make(), inputs()
    expected = trained(module, batch, torch.device("cpu"))
    for mine, theirs in zip(trained(module, batch, device), expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=TOLERANCE, rtol=TOLERANCE)


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, foreach=False),
    "sgd_foreach": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, foreach=True),
    "sgd_fused": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, fused=True),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=0.1, foreach=False),
    "adamw_foreach": lambda weights: torch.optim.AdamW(weights, lr=0.1, foreach=True),
    "adamw_fused": lambda weights: torch.optim.AdamW(weights, lr=0.1, fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_goes_where_it_goes_on_the_cpu(device: torch.device, name: str) -> None:
    """And does not wait for the device."""
    torch.manual_seed(0)
    model, batch = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)), torch.randn(4, 8)
    ends = []
    for place in (torch.device("cpu"), device):
        here, inputs = copy.deepcopy(model).to(place), batch.to(place)
        optimizer = OPTIMIZERS[name](list(here.parameters()))
        with no_synchronisation():
            for _ in range(5):
                here(inputs).square().mean().backward()
                nn.utils.clip_grad_norm_(here.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        ends.append([weight.detach().cpu() for weight in here.parameters()])
    torch.testing.assert_close(ends[1], ends[0], atol=TOLERANCE, rtol=TOLERANCE)
