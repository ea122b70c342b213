"""Several sequences in one row, where the batches say where each one ends."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainperf.core.errors import ConfigError
from trainperf.remedies.packing import IGNORED, first_fit
from trainperf.trials.batch_source import Rearrangement
from trainperf.trials.padded import lengths, mask_of
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


EMPTY = {
    "input_ids": 0,
    "attention_mask": 0,
    "labels": IGNORED,
    "position_ids": 0,
    "document_ids": -1,
}
"""Columns that a packed batch must have, with what stands where there is no text."""


def packed_batches(training: Training) -> list[Trial]:
    """Batches as `trainperf.remedies.pack` makes them, with one sequence in a row until now.

    Other batches are left alone: a model that is not told where a sequence ends would attend across
    it, and be faster at something else.
    """
    source = training.batches

    def why_not() -> str:
        try:
            fewer = sum(len(packed(batch)["input_ids"]) for batch in source.held)
        except ConfigError as error:
            return training.no_batches or str(error)
        rows = sum(len(batch["input_ids"]) for batch in source.held)
        fits = "" if fewer < rows else "no two of its sequences fit into one row"
        return training.no_batches or fits

    change = Rearrangement(lambda batches: [packed(batch) for batch in batches])
    return [
        Trial(
            "packed_batches",
            on=lambda: source.rearrange(change),
            off=lambda: source.rearrange(None),
            title="several sequences in a row",
            apply="batch = trainperf.remedies.pack(sequences, width, padding)",
            where="collate_fn of the DataLoader",
            group="batches",
            unavailable=why_not,
        )
    ]


def packed(batch: object) -> dict[str, Tensor]:
    """The same sequences in as few rows of the same width as first-fit needs.

    Raises:
        ConfigError: The batch does not say where a sequence ends, or is packed already.
    """
    columns = _columns(batch)
    mask, width = mask_of(columns), columns["input_ids"].shape[1]
    rows = first_fit(lengths(columns), width)
    shape = (len(rows), width)
    result = {name: columns[name].new_full(shape, value) for name, value in EMPTY.items()}
    for row, numbers in enumerate(rows):
        start = 0
        for document, number in enumerate(numbers):
            text = mask[number]
            stop = start + int(text.sum())
            for name, column in columns.items():
                result[name][row, start:stop] = column[number][text]
            result["document_ids"][row, start:stop] = document
            start = stop
    return result


def _columns(batch: object) -> dict[str, Tensor]:
    if not isinstance(batch, Mapping) or set(batch) != set(EMPTY):
        raise ConfigError(
            f"its batches do not consist of {', '.join(EMPTY)}, as the model would need to be told "
            "where a sequence ends"
        )
    columns: dict[str, Any] = dict(batch)
    shapes = {column.shape if isinstance(column, Tensor) else None for column in columns.values()}
    if len(shapes) > 1 or None in shapes:
        raise ConfigError("its columns have different shapes")
    if bool(torch.any(columns["document_ids"] > 0)):
        raise ConfigError("its batches are packed already")
    return columns
