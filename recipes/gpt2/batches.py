"""Batches of documents: one document per row, padded, or several per row, packed.

A batch is a dictionary of tensors of shape (rows, width):

* `input_ids`; padding is `PAD`
* `attention_mask`: 1 on text, 0 on padding.  Its sum is the number of effective tokens.
* `labels`: the *next* token of the same document, -100 where there is none.  They are shifted
  here and not in the model, so that no label can cross from one document to the next.
* packed only: `position_ids`, which start at 0 with each document, and `document_ids`, the number
  of the document within its row; padding is -1
"""

from torch import Tensor

from recipes.gpt2.text import PAD
from trainperf.remedies import packing


IGNORED = packing.IGNORED
"""The label that the loss leaves out: PyTorch's own default."""

Batch = dict[str, Tensor]
Document = list[int]


def pad(documents: list[Document], width: int | None = None) -> Batch:
    """One document per row, filled up to *width*; to the longest of them without it."""
    rows = [[document] for document in documents]
    batch = packing.lay_out(rows, width or max(map(len, documents)), PAD)
    return {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}


def pack(documents: list[Document], width: int) -> Batch:
    """Rows of *width* tokens, each holding as many of the documents as fit."""
    return packing.pack(documents, width, PAD)
