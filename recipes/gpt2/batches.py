"""How do documents become tensors?  One per row and padded, or several per row and packed.

A batch is a dictionary of tensors of shape (rows, width):

* `input_ids`; padding is `PAD`
* `attention_mask`: 1 on text, 0 on padding.  Its sum is the number of effective tokens.
* `labels`: the *next* token of the same document, -100 where there is none.  They are shifted
  here and not in the model, so that no label can cross from one document to the next.
* packed only: `position_ids`, which start at 0 with each document, and `document_ids`, the number
  of the document within its row; padding is -1
"""

import torch
from torch import Tensor

from recipes.gpt2.text import PAD


IGNORED = -100
"""The label that the loss leaves out: PyTorch's own default."""

Batch = dict[str, Tensor]
Document = list[int]


def pad(documents: list[Document]) -> Batch:
    """One document per row, filled up to the longest of them."""
    batch = _lay_out([[document] for document in documents], max(map(len, documents)))
    return {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}


def pack(documents: list[Document], width: int) -> Batch:
    """Rows of *width* tokens, each holding as many of the documents as fit."""
    return _lay_out(first_fit(documents, width), width)


def first_fit(documents: list[Document], width: int) -> list[list[Document]]:
    """Rows of documents: the longest first, each into the first row that has room for it.

    Never needs more than 11/9 of the fewest possible rows, plus one.
    """
    rows: list[list[Document]] = []
    room: list[int] = []
    for document in sorted(documents, key=len, reverse=True):
        fits = (number for number, left in enumerate(room) if left >= len(document))
        number = next(fits, len(rows))
        if number == len(rows):
            rows.append([])
            room.append(width)
        rows[number].append(document)
        room[number] -= len(document)
    return rows


def block_diagonal(document_ids: Tensor) -> Tensor:
    """Which token may attend to which: itself and the earlier ones of its own document.

    Boolean, of shape (rows, 1, width, width): one mask for all heads.  Padding attends to padding:
    a row of a softmax with nothing in it is NaN, and so is every gradient that it touches.
    """
    same = document_ids[:, None, :, None] == document_ids[:, None, None, :]
    return same.tril()


def _lay_out(rows: list[list[Document]], width: int) -> Batch:
    shape = (len(rows), width)
    batch = {
        "input_ids": torch.full(shape, PAD),
        "attention_mask": torch.zeros(shape, dtype=torch.long),
        "labels": torch.full(shape, IGNORED),
        "position_ids": torch.zeros(shape, dtype=torch.long),
        "document_ids": torch.full(shape, -1),
    }
    for row, documents in enumerate(rows):
        start = 0
        for number, document in enumerate(documents):
            tokens, stop = torch.tensor(document), start + len(document)
            batch["input_ids"][row, start:stop] = tokens
            batch["attention_mask"][row, start:stop] = 1
            batch["labels"][row, start : stop - 1] = tokens[1:]
            batch["position_ids"][row, start:stop] = torch.arange(len(document))
            batch["document_ids"][row, start:stop] = number
            start = stop
    return batch
