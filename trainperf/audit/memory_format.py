"""In which order does an image lie in memory?"""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainperf.audit.elementwise import Operator, name_of


def channels_last(func: Operator, given: Sequence[Tensor]) -> bool | None:
    """Whether a convolution over images was given its channels last; `None` for anything else."""
    name = name_of(func)
    if name not in ("convolution", "_convolution", "convolution_backward"):
        return None
    # Backward is given the gradient first, forward the input; either may come in any layout.
    image = given[0]
    if image.dim() != 4 or image.shape[1] == 1:
        return None
    return image.is_contiguous(memory_format=torch.channels_last)
