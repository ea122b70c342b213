"""Objects of one kind inside nested containers: tensors of a batch, loaders of a mapping."""

from collections.abc import Iterable, Iterator, Mapping
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
    else:
        for _, inner in _members(value, attributes=attributes)[1]:
            yield from walk(inner, *kinds, attributes=attributes)


def tensors_in(value: object) -> list[torch.Tensor]:
    """Every tensor of an argument of an operator, lists flattened.

    As `walk`, in a third of its time: an audit asks for every operator, several times.
    """
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
    else:
        place, members = _members(batch, attributes=True)
        for key, inner in members:
            yield from fields_of(inner, path + place.format(key))


def _members(value: object, *, attributes: bool) -> tuple[str, Iterable[tuple[object, object]]]:
    """How code names a member of a container by its key, and all of them with their keys."""
    if isinstance(value, list | tuple):
        return "[{}]", enumerate(value)
    if isinstance(value, Mapping):
        return "[{!r}]", value.items()
    if attributes and hasattr(value, "__dict__") and not callable(value):
        return ".{}", vars(value).items()
    return "", ()
