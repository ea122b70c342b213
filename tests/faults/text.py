"""Rows of tokens with a mask: sequences of many lengths, and a model that reads every position."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional

from faults.stand_in import compute


ROWS = 16
"""Sequences in a batch."""

VOCABULARY = 16


class Tagger(pl.LightningModule):
    """Scores every token by itself: a row takes as long as it is, padding included.

    The time is slept, so that it is the same on a busy machine.
    """

    def __init__(self, token_s: float = 4e-6) -> None:
        super().__init__()
        self._token_s = token_s
        self.read = nn.Embedding(VOCABULARY, 8)
        self.score = nn.Linear(8, VOCABULARY)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of the tokens that count."""
        compute(self._token_s * batch["input_ids"].numel())
        scores = self.score(self.read(batch["input_ids"][:, :4]))
        return functional.cross_entropy(scores.flatten(0, 1), batch["targets"][:, :4].flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """A fused one."""
        return torch.optim.SGD(self.parameters(), 0.01, fused=True)


class Texts:
    """Ready-made batches of so many rows each, padded to a length or to their longest.

    Args:
        lengths: Of all sequences, in the order in which they come.
        padded_to: Columns of every batch; without it those of its longest sequence.
        sleep_s: Before every batch.
    """

    def __init__(
        self, lengths: Sequence[int], padded_to: int | None = None, sleep_s: float = 0.0
    ) -> None:
        self._batches = [
            batch(lengths[first : first + ROWS], padded_to)
            for first in range(0, len(lengths), ROWS)
        ]
        self._sleep_s = sleep_s

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for made in self._batches:
            if self._sleep_s:
                time.sleep(self._sleep_s)
            yield made


def batch(lengths: Sequence[int], padded_to: int | None) -> dict[str, Tensor]:
    """Rows of these lengths; what is padded is neither masked in nor a target."""
    columns = padded_to or max(lengths)
    mask = torch.arange(columns) < torch.tensor(lengths)[:, None]
    ids = torch.randint(0, VOCABULARY, mask.shape)
    return {
        "input_ids": ids,
        "attention_mask": mask.long(),
        "targets": torch.where(mask, ids, -100),
    }


def lengths(number: int, shortest: int, longest: int) -> list[int]:
    """Of that many batches, evenly spread and in no order."""
    generator = torch.Generator().manual_seed(0)
    drawn: list[int] = torch.randint(
        shortest, longest + 1, (number * ROWS,), generator=generator
    ).tolist()
    return drawn
