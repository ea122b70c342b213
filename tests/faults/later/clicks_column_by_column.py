"""Clicks as in Criteo's table: a sample is a dictionary with a tensor for each of 39 columns."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from faults.base import script
from faults.loads import fit


CATEGORIES, NUMBERS, VALUES, WIDTH = 26, 13, 1_000, 16
ROWS, STEPS = 64, 50


class Clicks(Dataset[dict[str, Tensor]]):
    """Columns by their names, or two rows of all of them."""

    def __init__(self, *, together: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        self._categories = torch.randint(0, VALUES, (2_000, CATEGORIES), generator=generator)
        self._numbers = torch.randn(2_000, NUMBERS, generator=generator)
        self._together = together

    def __len__(self) -> int:
        return STEPS * ROWS

    def __getitem__(self, key: int) -> dict[str, Tensor]:
        place = key % 2_000
        label = torch.tensor(float(key % 2))
        categories, numbers = self._categories[place], self._numbers[place]
        if self._together:
            return {"categories": categories, "numbers": numbers, "label": label}
        sample = {f"C{column + 1}": categories[column] for column in range(CATEGORIES)}
        sample |= {f"I{column + 1}": numbers[column] for column in range(NUMBERS)}
        return {**sample, "label": label}


class Ranker(pl.LightningModule):
    """An embedding of each category and a perceptron on top."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(VALUES, WIDTH) for _ in range(CATEGORIES))
        self.top = nn.Sequential(
            nn.Linear(CATEGORIES * WIDTH + NUMBERS, 400),
            nn.ReLU(),
            nn.Linear(400, 400),
            nn.ReLU(),
            nn.Linear(400, 1),
        )

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Whether it was clicked."""
        del batch_idx
        if "categories" in batch:
            categories, numbers = batch["categories"].unbind(1), batch["numbers"]
        else:
            categories = [batch[f"C{column + 1}"] for column in range(CATEGORIES)]
            numbers = torch.stack([batch[f"I{column + 1}"] for column in range(NUMBERS)], dim=1)
        read = [table(column) for table, column in zip(self.tables, categories, strict=True)]
        scores = self.top(torch.cat([*read, numbers], dim=1))
        return functional.binary_cross_entropy_with_logits(scores[:, 0], batch["label"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """A fused one."""
        return torch.optim.Adagrad(self.parameters(), 0.01, fused=True)


@script("many_small_tensors")
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    loader = DataLoader(Clicks(together=fixed), batch_size=ROWS)
    fit(out, loader, module=Ranker())
