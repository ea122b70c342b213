"""Rows that hold several sequences: what a batch says of it, read on the host."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch


OFFSETS = ("cu_seqlens", "cu_seq_lens_q", "seq_idx")
"""Names under which attention over packed rows takes where each sequence begins."""

_WHOLE = (torch.int32, torch.int64, torch.bool)


def is_packed(batch: Mapping[str, object], mask: torch.Tensor) -> bool:
    """Whether a row of the batch holds several sequences; false where it does not say.

    It says so by the offsets of its sequences, by a document number above 0, by positions that
    begin anew amid the row's text, or by a mask that counts the sequences.

    Args:
        batch: Its tensors on the host are read, by NumPy; those elsewhere are not.
        mask: Of shape (rows, tokens), other than 0 where there is text.
    """
    if any(isinstance(batch.get(name), torch.Tensor) for name in OFFSETS):
        return True
    text = _on_host(mask)
    if text is None:
        return False
    documents, positions = (_on_host(batch.get(name)) for name in ("document_ids", "position_ids"))
    if documents is not None and bool((documents > 0).any()):
        return True
    if positions is not None and positions.shape == text.shape:
        return bool((((positions == 0) & (text != 0)).sum(-1) > 1).any())
    return bool((text > 1).any())


def _on_host(value: object) -> npt.NDArray[np.int64] | None:
    """A tensor of whole numbers as NumPy sees it; `None` for anything else."""
    if not isinstance(value, torch.Tensor) or not value.is_cpu or value.dtype not in _WHOLE:
        return None
    return value.numpy().astype(np.int64, copy=False)
