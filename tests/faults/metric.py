"""A model that measures how good it is while it trains."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from faults.models import Classifier


class Metered(Classifier):
    """Computes a metric of its scores in every so many batches.

    Args:
        every: Batches between two times, the last one among them.
        rounds: Thresholds at which each class is counted.
    """

    def __init__(self, *, every: int, rounds: int = 40) -> None:
        super().__init__()
        self._every, self._rounds = every, rounds

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss."""
        rows, labels = batch
        scores = self.body(rows)
        loss = functional.cross_entropy(scores, labels)
        if (batch_idx + 1) % self._every == 0:
            with torch.no_grad():
                self.last = curve(scores, labels, self._rounds)
        return loss


def curve(scores: Tensor, labels: Tensor, rounds: int) -> Tensor:
    """Hits per class at each of some thresholds."""
    chances = scores.softmax(1)
    right = functional.one_hot(labels, 10).bool()
    hits = []
    for place in range(rounds):
        order = chances.sort(0, descending=True).values
        chosen = chances >= order[place]
        hits.append((chosen & right).sum(0))
    return torch.stack(hits)
