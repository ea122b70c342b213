"""minGPT's attention: scores, mask and softmax written out, over long rows."""

import math
from pathlib import Path

import torch
from torch import Tensor

from faults.base import script
from faults.repositories import Gpt, get_batch, nano


LONG = 512
MASK = torch.tril(torch.ones(LONG, LONG)).view(1, 1, LONG, LONG)


def _written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    scores = scores.masked_fill(MASK == 0, float("-inf"))
    return scores.softmax(dim=-1) @ v


@script("attention")
def _train(out: Path, *, fixed: bool) -> None:
    model = Gpt(None if fixed else _written_out, block=LONG)
    nano(out, model, [get_batch(4, LONG)] * 40)
