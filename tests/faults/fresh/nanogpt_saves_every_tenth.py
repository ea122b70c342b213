"""`always_save_checkpoint` with an interval left at ten steps; the twin saves every thousandth."""

from pathlib import Path

import torch
from torch import Tensor, nn

from faults.base import script
from faults.repositories import Gpt, get_batch, nano


@script("slow_steps")
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    out.mkdir(parents=True, exist_ok=True)
    every = 1000 if fixed else 10

    def save(number: int, loss: Tensor, model: nn.Module) -> None:
        if number % every == every - 1:
            torch.save({"model": model.state_dict(), "best": loss.detach()}, out / "ckpt.pt")

    model = Gpt()
    model.unused_head = nn.Embedding(40_000, 64)  # as large as a vocabulary is
    nano(out / "run", model, [get_batch()] * 100, after=save)
