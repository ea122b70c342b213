"""Models whose operators can be slow in a way: by themselves nothing is wrong with them."""

from collections.abc import Callable, Iterator
from itertools import repeat

import torch
from torch import Tensor, nn
from torch.nn import functional


class Ready:
    """The same batch so many times: nothing is made or collated."""

    def __init__(self, batch: tuple[Tensor, Tensor], number: int) -> None:
        self._batch = batch
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return repeat(self._batch, self._number)


def ready(number: int, *shape: int, size: int = 16, dtype: torch.dtype = torch.float32) -> Ready:
    """Random rows and labels of ten classes."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(size, *shape, generator=generator).to(dtype)
    return Ready((rows, torch.randint(0, 10, (size,), generator=generator)), number)


class Written(nn.Module):
    """Between two linear layers, what a script writes there.

    Args:
        between: From and to rows of the hidden width.
        width: Of the rows that come in.
        hidden: Width in between.
    """

    def __init__(
        self, between: Callable[[Tensor], Tensor], width: int = 64, hidden: int = 64
    ) -> None:
        super().__init__()
        self.into = nn.Linear(width, hidden)
        self.out = nn.Linear(hidden, 10)
        self._between = between

    def forward(self, rows: Tensor) -> Tensor:
        """Scores of ten classes."""
        scores: Tensor = self.out(self._between(self.into(rows)))
        return scores


class Attention(nn.Module):
    """Self-attention over sequences, and a mean over them.

    Args:
        attend: From queries, keys and values of shape (sequences, heads, length, width).
        heads: How many.
        width: Of all heads together.
    """

    def __init__(
        self,
        attend: Callable[[Tensor, Tensor, Tensor], Tensor],
        heads: int = 4,
        width: int = 64,
    ) -> None:
        super().__init__()
        self._attend = attend
        self._heads = heads
        self.given = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of ten classes for each sequence."""
        parts = self.given(tokens).chunk(3, dim=-1)
        query, key, value = (
            part.unflatten(-1, (self._heads, -1)).transpose(1, 2) for part in parts
        )
        mixed = self._attend(query, key, value).transpose(1, 2).flatten(2)
        scores: Tensor = self.out(mixed.mean(dim=1))
        return scores


def eager(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """As a formula: all scores lie in memory."""
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    return scores.softmax(dim=-1) @ value


def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The same, some scores at a time."""
    return functional.scaled_dot_product_attention(query, key, value)


def by_formula(rows: Tensor) -> Tensor:
    """GELU as eight elementwise operators."""
    return 0.5 * rows * (1.0 + (0.79788456 * (rows + 0.044715 * rows * rows * rows)).tanh())


def in_one(rows: Tensor) -> Tensor:
    """The same as one operator."""
    return functional.gelu(rows, approximate="tanh")


def adamw(*, fused: bool, foreach: bool | None = None) -> Callable[..., torch.optim.Optimizer]:
    """Makes an AdamW of that kind."""
    return lambda own: torch.optim.AdamW(own, 1e-4, fused=fused or None, foreach=foreach)


def small_layers(number: int = 60, width: int = 32) -> nn.Sequential:
    """Many small parameters."""
    return nn.Sequential(
        nn.Linear(64, width),
        *(nn.Linear(width, width) for _ in range(number)),
        nn.Linear(width, 10),
    )
