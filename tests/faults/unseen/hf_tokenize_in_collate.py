"""The collate function tokenizes: every word of every text, in the process that trains."""

import re
from pathlib import Path
from typing import Any

import torch

from faults.base import script
from faults.loads import ROWS, STEPS, WIDTH, fit, loader


TEXT = "the quick brown fox jumps over the lazy dog and " * 40


class Words:
    """Texts with their labels, or what they were tokenized to beforehand."""

    def __init__(self, *, ready: bool) -> None:
        self._ready = _ids(TEXT) if ready else None

    def __len__(self) -> int:
        return STEPS * ROWS

    def __getitem__(self, key: int) -> Any:
        return (TEXT if self._ready is None else self._ready), key % 10


def _ids(text: str) -> torch.Tensor:
    words = re.findall(r"[a-z]+", text.lower())
    return torch.tensor([float(hash(word) % 1000) for word in words[:WIDTH]])


def _collate(samples: list[Any]) -> Any:
    rows = [_ids(text) if isinstance(text, str) else text for text, _ in samples]
    return torch.stack(rows), torch.tensor([label for _, label in samples])


@script("data_wait", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    dataset: Any = Words(ready=fixed)
    fit(out, loader(dataset, collate_fn=_collate))
