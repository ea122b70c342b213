"""A batch of twelve tensors, which a slower step does not feel."""

from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from faults.base import script
from faults.loads import WIDTH, Fields, Paced, Samples, fit, loader


FIELDS = 8


class Some(Dataset[Any]):
    """Eight parts of a row."""

    def __init__(self) -> None:
        self.samples = Samples(steps=34)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, key: int) -> Any:
        row, label = self.samples[key]
        parts = row.view(FIELDS, WIDTH // FIELDS)
        return {**{f"part{n}": parts[n] for n in range(FIELDS)}, "label": label}


@script()
def _train(out: Path, *, fixed: bool) -> None:
    fit(out, loader(Some()), module=Fields(Paced(0.110)))
