"""Objects of one kind inside nested containers: tensors of a batch, loaders of a mapping."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import torch


T = TypeVar("T")


def walker(*kinds: type[T], attributes: bool = False) -> Callable[[object], Iterator[T]]:
    """A function that finds what is of *kinds* in nested mappings, lists and tuples.

    Args:
        kinds: What is yielded, and not looked into.
        attributes: Whether objects with attributes are looked into as well.
    """

    def walk(value: object) -> Iterator[T]:
        if isinstance(value, kinds):
            yield value
        elif isinstance(value, Mapping):
            for inner in value.values():
                yield from walk(inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                yield from walk(inner)
        elif attributes and hasattr(value, "__dict__") and not callable(value):
            yield from walk(vars(value))

    return walk


def tensors_in(value: object) -> list[torch.Tensor]:
    """Every tensor of an argument of an operator, lists flattened."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for inner in value for tensor in tensors_in(inner)]


tensors: Callable[[object], Iterable[torch.Tensor]] = walker(torch.Tensor, attributes=True)
"""The tensors in a batch of nested mappings, sequences and objects with attributes."""
