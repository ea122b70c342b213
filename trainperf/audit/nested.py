"""Objects of one kind inside nested containers: tensors of a batch, loaders of a mapping."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import torch


T = TypeVar("T")


def walk(value: object, *kinds: type[T], attributes: bool = False) -> Iterator[T]:
    """What is of *kinds* in nested mappings, lists and tuples; it is not looked into.

    Args:
        value: Where to look.
        kinds: What is yielded.
        attributes: Whether objects with attributes are looked into as well.
    """
    if isinstance(value, kinds):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from walk(inner, *kinds, attributes=attributes)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from walk(inner, *kinds, attributes=attributes)
    elif attributes and hasattr(value, "__dict__") and not callable(value):
        yield from walk(vars(value), *kinds, attributes=attributes)


def tensors_in(value: object) -> list[torch.Tensor]:
    """Every tensor of an argument of an operator, lists flattened."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for inner in value for tensor in tensors_in(inner)]


def tensors(value: object) -> Iterator[torch.Tensor]:
    """The tensors in a batch of nested mappings, sequences and objects with attributes."""
    return walk(value, torch.Tensor, attributes=True)


def fields_of(batch: object, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a batch with their places in it, as code has them: `['image']`, `[0]`."""
    if isinstance(batch, torch.Tensor):
        yield path, batch
    elif isinstance(batch, Mapping):
        for key, inner in batch.items():
            yield from fields_of(inner, f"{path}[{key!r}]")
    elif isinstance(batch, list | tuple):
        for at, inner in enumerate(batch):
            yield from fields_of(inner, f"{path}[{at}]")
    elif hasattr(batch, "__dict__") and not callable(batch):
        for name, inner in vars(batch).items():
            yield from fields_of(inner, f"{path}.{name}")
