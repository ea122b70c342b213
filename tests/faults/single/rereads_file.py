"""Every sample opens, unpacks and reads the same file again."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from faults.base import script
from faults.loads import ROWS, Samples, fit, loader


class FromFile(Samples):
    """Rows of a packed file that is read for each, or once."""

    def __init__(self, path: Path, *, cached: bool) -> None:
        super().__init__()
        np.savez_compressed(path, rows=self.rows.repeat(8, 1).numpy())
        self.path = path
        self.held = self.read() if cached else None

    def read(self) -> torch.Tensor:
        """The whole file."""
        with np.load(self.path) as file:
            return torch.from_numpy(file["rows"])

    def __getitem__(self, key: int) -> Any:
        rows = self.read() if self.held is None else self.held
        return rows[key % ROWS], key % 10


@script("data_wait", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    out.mkdir(parents=True, exist_ok=True)
    fit(out, loader(FromFile(out / "rows.npz", cached=fixed)))
