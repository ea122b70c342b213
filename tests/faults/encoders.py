"""A small encoder that tags the tokens of texts, under an optimizer that takes its time, too."""

from collections.abc import Iterable, Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional


WORDS, WIDTH, TAGS, LONGEST = 8_000, 64, 16, 128


class Encoder(nn.Module):
    """Two layers over embedded words; padding is masked out."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.score = nn.Linear(WIDTH, TAGS)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """Scores of tags, word by word."""
        hidden = self.words(words) + self.places(torch.arange(words.shape[1]))
        scores: Tensor = self.score(self.layers(hidden, src_key_padding_mask=mask == 0))
        return scores


def loss_of(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Of the words that are no padding."""
    scores = model(batch["input_ids"], batch["attention_mask"])
    return functional.cross_entropy(scores.flatten(0, 1), batch["labels"].flatten())


class Tagger(pl.LightningModule):
    """The same under Lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        del batch_idx
        return loss_of(self.encoder, batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """A fused one."""
        return torch.optim.AdamW(self.parameters(), 1e-3, fused=True)


def padded(rows: Iterable[Sequence[int]], *, to: int | None) -> list[dict[str, Tensor]]:
    """A batch of each group of lengths, as wide as its longest or as *to*."""
    generator = torch.Generator().manual_seed(0)
    batches = []
    for lengths in rows:
        width = to or max(lengths)
        mask = torch.arange(width) < torch.tensor(lengths)[:, None]
        words = torch.randint(1, WORDS, mask.shape, generator=generator) * mask
        labels = torch.where(mask, words % TAGS, -100)
        batches.append({"input_ids": words, "attention_mask": mask.long(), "labels": labels})
    return batches
