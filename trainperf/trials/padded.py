"""Batches of padded sequences: where their text ends, rows cut to it, rows put together anew.

A batch is a mapping; its columns are the tensors whose shape begins with (rows, width), as that of
the attention mask.  Other tensors go by row; the rest is left as it is.
"""

import copy
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from trainperf.core.errors import ConfigError
from trainperf.remedies.packing import IGNORED


MASK, IDS, LABELS = "attention_mask", "input_ids", "labels"
Batch = Mapping[str, Any]


def mask_of(batch: object) -> Tensor:
    """Which positions are text: those of the attention mask, or up to a row's last label.

    Raises:
        ConfigError: The batch tells neither.
    """
    if not isinstance(batch, Mapping):
        raise ConfigError(f"its batches are {type(batch).__name__}, not a mapping with {MASK}")
    mask = batch.get(MASK)
    if isinstance(mask, Tensor) and mask.ndim == 2:
        return mask != 0
    labels = batch.get(LABELS)
    if isinstance(labels, Tensor) and labels.ndim == 2 and not labels.is_floating_point():
        return (labels != IGNORED).flip(1).cumsum(1).flip(1) > 0
    raise ConfigError(f"its batches have neither {MASK} nor {LABELS} of shape (rows, width)")


LEAST = 0.01
"""Share of the positions that must go, for a cut to be tried."""


def no_cut(batches: Collection[Any], cut: Callable[[list[Any]], list[Any]], uncut: str) -> str:
    """Why next to no padding would go; empty if some does.

    Args:
        batches: Of the training.
        cut: Makes batches without it.
        uncut: The reason where there is none.
    """
    try:
        before = positions(batches)
        return "" if batches and positions(cut(list(batches))) <= (1 - LEAST) * before else uncut
    except ConfigError as error:
        return str(error)


def positions(batches: Collection[object]) -> int:
    """All of them, padding included."""
    return sum(mask_of(batch).numel() for batch in batches)


def trimmed(batch: Any) -> Any:  # noqa: ANN401 the user's batch, of the same type
    """The batch without the columns in which no row has text, on whichever side they are."""
    mask = mask_of(batch)
    columns = torch.nonzero(mask.any(0)).flatten().tolist() or [0]  # without text it keeps one
    first, last = columns[0], columns[-1] + 1
    if last - first == mask.shape[1]:
        return batch
    return like(
        batch,
        {
            name: value[:, first:last].contiguous() if _is_column(value, mask.shape) else value
            for name, value in batch.items()
        },
    )


def all_trimmed(batches: Sequence[Any]) -> list[Any]:
    """Each of them without the columns in which no row has text."""
    return [trimmed(batch) for batch in batches]


def by_length(batches: Sequence[Any]) -> list[Any]:
    """The same rows in batches of neighbours in length, each as wide as its longest row.

    Raises:
        ConfigError: Their rows cannot be exchanged.
    """
    pooled = _pooled(all_trimmed(batches))
    # Never more batches than there were: the last one of an epoch may be short.
    rows = max(mask_of(batch).shape[0] for batch in batches)
    groups = torch.split(mask_of(pooled).sum(1).argsort(stable=True), rows)
    return [
        trimmed(like(batches[0], {name: column[group] for name, column in pooled.items()}))
        for group in groups
    ]


def _pooled(batches: Sequence[Batch]) -> dict[str, Tensor]:
    """All rows of all batches, as wide as the widest; padded where those of its batch were."""
    masks = [mask_of(batch) for batch in batches]
    return {name: _joined(name, [batch[name] for batch in batches], masks) for name in batches[0]}


def _joined(name: str, values: list[Any], masks: list[Tensor]) -> Tensor:
    pairs = list(zip(values, masks, strict=True))
    if all(_is_column(value, mask.shape) for value, mask in pairs):
        left = any(bool((mask[:, -1:] & ~mask[:, :1]).any()) for mask in masks)
        rows = [row for value in values for row in value]
        side = "left" if left else "right"
        return pad_sequence(rows, True, _padding(name, pairs), side)
    if all(_is_column(value, mask.shape[:1]) for value, mask in pairs):
        return torch.cat(values)
    raise ConfigError(f"{name!r} of its batches is no tensor of rows, so they cannot be exchanged")


def _padding(name: str, pairs: list[tuple[Tensor, Tensor]]) -> float:
    """What stands where there is no text; by the name where there is text everywhere."""
    empty = torch.cat([value[~mask].flatten() for value, mask in pairs])
    return float(empty[0]) if empty.numel() else IGNORED if name == LABELS else 0


def like(batch: Batch, values: dict[str, Any]) -> Any:  # noqa: ANN401 of the user's type
    """The batch with these values: of the user's own class, with whatever else it holds."""
    if not isinstance(batch, MutableMapping):
        return type(batch)(values)  # type: ignore[call-arg]
    other = copy.copy(batch)
    other.update(values)
    return other


def _is_column(value: object, shape: torch.Size) -> bool:
    return isinstance(value, Tensor) and value.shape[: len(shape)] == shape
