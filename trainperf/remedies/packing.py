"""Packing: several sequences in one row, none of which attends to another.

A packed batch is a dictionary of tensors of shape (rows, width):

* `input_ids`, `attention_mask` (1 on text: its sum is the number of effective tokens)
* `labels`: the *next* token of the same sequence, -100 where there is none.  They are shifted here
  and not in the model, so that no label can cross from one sequence to the next.
* `position_ids`, which start at 0 with each sequence
* `document_ids`: the number of the sequence within its row; padding is -1.  Attention must be
  kept inside of it: `same_document`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainperf.core.errors import ConfigError


IGNORED = -100
"""The label that the loss leaves out: PyTorch's own default."""


def first_fit(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Numbers of sequences row by row: the longest first, each into the first row with room.

    Never needs more than 11/9 of the fewest possible rows, plus one.  For the sequences of a batch
    or of a pool of them: its time grows with their number times the number of rows.

    Raises:
        ConfigError: A sequence is longer than a row.
    """
    rows: list[list[int]] = []
    room: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        length = lengths[number]
        if length > width:
            raise ConfigError(f"a sequence of {length} tokens: rows hold {width}; cut it first")
        row = next((row for row, left in enumerate(room) if left >= length), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(width)
        rows[row].append(number)
        room[row] -= length
    return rows


def pack(sequences: Sequence[Sequence[int]], width: int, padding: int) -> dict[str, Tensor]:
    """Rows of *width* tokens that hold all sequences; what is left over is *padding*.

    Raises:
        ConfigError: A sequence is longer than a row.
    """
    rows = first_fit([len(sequence) for sequence in sequences], width)
    return lay_out([[sequences[number] for number in row] for row in rows], width, padding)


def lay_out(rows: Sequence[Sequence[Sequence[int]]], width: int, padding: int) -> dict[str, Tensor]:
    """The batch whose rows hold these sequences, one after the other."""
    shape = (len(rows), width)
    batch = {
        "input_ids": torch.full(shape, padding),
        "attention_mask": torch.zeros(shape, dtype=torch.long),
        "labels": torch.full(shape, IGNORED),
        "position_ids": torch.zeros(shape, dtype=torch.long),
        "document_ids": torch.full(shape, -1),
    }
    for row, sequences in enumerate(rows):
        start = 0
        for number, sequence in enumerate(sequences):
            if not sequence:
                continue
            tokens, stop = torch.tensor(sequence), start + len(sequence)
            batch["input_ids"][row, start:stop] = tokens
            batch["attention_mask"][row, start:stop] = 1
            batch["labels"][row, start : stop - 1] = tokens[1:]
            batch["position_ids"][row, start:stop] = torch.arange(len(sequence))
            batch["document_ids"][row, start:stop] = number
            start = stop
    return batch


def same_document(document_ids: Tensor) -> Tensor:
    """Which token may attend to which: itself and the earlier ones of its own sequence.

    Boolean, of shape (rows, 1, width, width): one mask for all heads.  Padding attends to padding:
    a row of a softmax with nothing in it is NaN, and so is every gradient that it touches.
    """
    same = document_ids[:, None, :, None] == document_ids[:, None, None, :]
    return same.tril()
