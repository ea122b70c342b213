"""What each of two ranks runs: a Hugging Face training under DDP, in which rank 1 is late."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from support.hugging_face import Rows, Tiny, quiet, trainer
from torch.utils.data import IterableDataset


STEPS = 20
LATE_S = 0.02


class Stream(IterableDataset[dict[str, torch.Tensor]]):
    """Rows without a length."""

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        return (Rows(200)[place] for place in range(200))


class Counted(Tiny):
    """Takes what the Trainer counts, so that it does."""

    def forward(
        self, x: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **_: Any
    ) -> dict[str, torch.Tensor]:
        """As the other."""
        return super().forward(x, attention_mask, labels)


def train(rank: int, base: Path, port: int, where: str = "forward") -> None:
    """One rank of two; rank 1 sleeps in every forward, or its loader does.

    Where the loader does, the ranks gather their token counts before each step; where it is a
    *stream*, rank 0 loads for both.
    """
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    torch.set_num_threads(1)
    late = (lambda: time.sleep(LATE_S)) if rank else None
    training = trainer(
        base,
        quiet(),
        model=Tiny(late) if where == "forward" else Counted(),
        rows=Stream() if where == "stream" else Rows(200, late if where == "loader" else None),
        max_steps=STEPS,
        ddp_backend="gloo",
        gradient_accumulation_steps=2,
    )
    training.train()
    torch.distributed.destroy_process_group()
