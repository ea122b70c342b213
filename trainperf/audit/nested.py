"""Tensors inside nested containers."""

from collections.abc import Iterable, Mapping

import torch


def tensors(batch: object) -> Iterable[torch.Tensor]:
    """The tensors in a batch of nested mappings, sequences and objects with attributes."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors(value)
    elif hasattr(batch, "__dict__") and not callable(batch):
        yield from tensors(vars(batch))
