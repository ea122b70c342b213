"""Numbers by which rows of tensors are known again, computed on their device.

Equal rows have equal numbers; unlike ones have unlike numbers but for rounding.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


ROWS, NUMBERS = 64, 256
"""Of a batch, and of a row, so many are looked at."""


def plain(tensor: Tensor) -> bool:
    """Whether to look at some of its numbers is all that happens then.

    Of one that is sharded it would be a collective, of a sparse or an empty one an error.
    """
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_complex()
        and tensor.numel() > 0
    )


def fingerprints(several: Sequence[Tensor]) -> Tensor:
    """A number for each of the first rows, from some numbers of all that have as many rows."""
    first = several[0]
    # Single precision where a device has no other; roots, lest sums of whole numbers agree.
    kind = torch.float32 if first.device.type == "mps" else torch.float64
    sums = torch.zeros((), device=first.device, dtype=kind)
    for number, tensor in enumerate(several, start=2):
        if len(tensor) == len(first):
            rows = tensor.detach()[:ROWS].reshape(min(ROWS, len(tensor)), -1)
            columns = rows[:, :: max(1, rows.shape[1] // NUMBERS)].to(first.device, kind)
            numbers = torch.arange(
                number, number + columns.shape[1], device=first.device, dtype=kind
            )
            sums = sums + (columns * numbers.sqrt()).sum(1)
    return sums
