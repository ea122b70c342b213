"""A vision transformer as in timm with `fused_attn=False`: 196 patches, scores in memory."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from faults.base import script, train
from faults.models import Classifier


class Attention(nn.Module):
    """Of all patches to all."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
            mixed = scores.softmax(dim=-1) @ v
        projected: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return projected


class Block(nn.Module):
    """Attention and a perceptron, each with a norm before it."""

    def __init__(self, width: int, *, fused: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, 6, fused=fused)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        x = x + self.attn(self.norm1(x))
        mixed: Tensor = x + self.mlp(self.norm2(x))
        return mixed


class Mean(nn.Module):
    """Of all patches."""

    def forward(self, x: Tensor) -> Tensor:
        """One row for each picture."""
        return x.mean(1)


@script("attention")
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    blocks = [Block(96, fused=fixed) for _ in range(2)]
    model = Classifier(nn.Sequential(nn.Linear(48, 96), *blocks, Mean(), nn.Linear(96, 10)))
    batch = (torch.randn(6, 196, 48), torch.randint(0, 10, (6,)))
    whole: Any = [batch] * 60
    train(out, model, DataLoader(whole, batch_size=None))
