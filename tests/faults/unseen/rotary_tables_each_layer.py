"""Rotary tables of the longest context, computed anew whenever they are needed."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from faults.base import script
from faults.repositories import Gpt, get_batch, nano


CONTEXT = 8192


def _tables() -> tuple[Tensor, Tensor]:
    rates = 1.0 / 10_000 ** (torch.arange(0, 16, 2) / 16)
    angles = torch.outer(torch.arange(CONTEXT), rates)
    return torch.cos(torch.cat([angles, angles], -1)), torch.sin(torch.cat([angles, angles], -1))


READY = _tables()


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    now = x.shape[-2]
    return x * cos[:now] + torch.cat([-right, left], -1) * sin[:now]


@script("constant_rebuilt")
def _train(out: Path, *, fixed: bool) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cos, sin = READY if fixed else _tables()
        q, k = _turned(q, cos, sin), _turned(k, cos, sin)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    nano(out, Gpt(attend), [get_batch()] * 40)
