"""A sample has its numbers in 48 tensors, and so has the batch."""

from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from faults.base import script
from faults.loads import ROWS, STEPS, Fields, Paced, Samples, fit, loader


FIELDS = 48


class Apart(Dataset[Any]):
    """One tensor a field, or one of them all."""

    def __init__(self, *, together: bool) -> None:
        self.samples = Samples()
        self.rows = self.samples.rows[:, :FIELDS]
        self.together = together

    def __len__(self) -> int:
        return STEPS * ROWS

    def __getitem__(self, key: int) -> Any:
        row, label = self.rows[key % ROWS], key % 10
        if self.together:
            return {"fields": row, "label": label}
        return {**{f"field{n}": row[n : n + 1] for n in range(FIELDS)}, "label": label}


@script("data_wait", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    fit(out, loader(Apart(together=fixed)), module=Fields(Paced(width=FIELDS)))
