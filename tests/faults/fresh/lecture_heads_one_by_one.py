"""A list of heads, each with projections of its own, as in the GPT lecture; the twin has one."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from faults.base import script
from faults.repositories import VOCABULARY, get_batch, nano


HEADS, SIZE, BLOCK = 12, 8, 24
WIDTH = HEADS * SIZE


class Head(nn.Module):
    """One of them."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(WIDTH, SIZE, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """What it attends to."""
        return functional.scaled_dot_product_attention(
            self.query(x), self.key(x), self.value(x), is_causal=True
        )


class Heads(nn.Module):
    """One after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head() for _ in range(HEADS))

    def forward(self, x: Tensor) -> Tensor:
        """What all attend to, next to each other."""
        return torch.cat([head(x) for head in self.heads], dim=-1)


class AtOnce(nn.Module):
    """The same in one projection and one attention."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """What all attend to, next to each other."""
        q, k, v = (
            part.unflatten(-1, (HEADS, SIZE)).transpose(1, 2)
            for part in self.c_attn(x).chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).flatten(2)


@script("launch_bound", changes=("one_operator",))
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    mix = [nn.Sequential(AtOnce() if fixed else Heads(), nn.Linear(WIDTH, WIDTH)) for _ in "ab"]
    model = nn.Sequential(
        nn.Embedding(VOCABULARY, WIDTH), *mix, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)
    )
    nano(out, model, [get_batch(8, BLOCK)] * 60)
