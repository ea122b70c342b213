"""Model that answers: a small transformer that sorts texts into classes, and what it is asked."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


DROPOUT = 0.1
CLASSES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large model and measurements are."""

    width: int
    layers: int
    heads: int
    vocabulary: int
    length: int
    """Tokens of a request."""
    batch: int
    """Requests of a batch."""
    steps: int
    """Batches of a loop."""
    long: int
    """Batches of the long loop, which is profiled on a schedule."""
    seconds: float
    """Of measuring per comparison."""
    compiles: bool
    """Whether torch.compile is tried: it takes longer than all the rest."""
    batch_sizes: tuple[int, ...]


SIZES = {
    "small": Size(
        width=32,
        layers=1,
        heads=2,
        vocabulary=64,
        length=8,
        batch=2,
        steps=40,
        long=48,
        seconds=0.02,
        compiles=False,
        batch_sizes=(1, 2),
    ),
    "full": Size(
        width=256,
        layers=4,
        heads=4,
        vocabulary=8192,
        length=64,
        batch=4,
        steps=80,
        long=1000,
        seconds=3.0,
        compiles=True,
        batch_sizes=(1, 2, 4, 8, 16, 32),
    ),
}


class Block(nn.Module):
    """Attention and a feed-forward net, each with a norm before and dropout after it.

    Args:
        size: Of the model.
        always: Whether dropout does not ask for the mode: the fault that `eval()` does not mend.
    """

    def __init__(self, size: Size, *, always: bool) -> None:
        super().__init__()
        self.heads, self.always = size.heads, always
        self.norm, self.further_norm = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        self.wide = nn.Linear(size.width, 4 * size.width)
        self.narrow = nn.Linear(4 * size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        attended = functional.scaled_dot_product_attention(query, key, value)
        x = x + self._dropped(self.out(attended.transpose(1, 2).flatten(2)))
        hidden = functional.gelu(self.wide(self.further_norm(x)))
        return x + self._dropped(self.narrow(hidden))

    def _dropped(self, x: Tensor) -> Tensor:
        return functional.dropout(x, DROPOUT, training=self.training or self.always)


class Classifier(nn.Module):
    """From tokens, shape (requests, length), to a score per class.

    Args:
        size: Of the model.
        always: As of `Block`.
    """

    def __init__(self, size: Size, *, always: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Parameter(torch.zeros(size.length, size.width))
        self.drop = nn.Dropout(DROPOUT)
        self.blocks = nn.Sequential(*(Block(size, always=always) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        self.scores = nn.Linear(size.width, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores, shape (requests, classes)."""
        x = self.drop(self.tokens(tokens) + self.places[: tokens.shape[1]])
        scores: Tensor = self.scores(self.norm(self.blocks(x)).mean(dim=1))
        return scores


def device() -> torch.device:
    """Where all of it runs."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def model_of(size: Size, *, always: bool = False) -> Classifier:
    """The same weights every time, in eval mode."""
    torch.manual_seed(0)
    return Classifier(size, always=always).to(device()).eval()


def batch_of(size: Size, requests: int | None = None, seed: int = 0) -> Tensor:
    """Requests, by default those of a batch, on the host."""
    generator = torch.Generator().manual_seed(seed)
    shape = (size.batch if requests is None else requests, size.length)
    return torch.randint(size.vocabulary, shape, generator=generator)


def batches_of(size: Size, steps: int) -> Iterator[Tensor]:
    """So many batches of a loop, one after the other."""
    for seed in range(steps):
        yield batch_of(size, seed=seed)
