"""How much is measured, and on what size of work."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapEffort:
    """Time for a case, and the size of its work."""

    paired_s: float
    """Of measuring two versions in turns."""
    matrix: int
    """Rows and columns of matrices on a CPU."""
    record: int
    """Rows of a compressed batch."""
    steps: int
    """Of a loop that is watched."""
    compiled: bool
    """Whether `torch.compile` is tried on a CPU: its first call takes seconds."""


SMALL = OverlapEffort(paired_s=0.05, matrix=64, record=8, steps=12, compiled=False)
FULL = OverlapEffort(paired_s=2.5, matrix=512, record=192, steps=120, compiled=True)

CUDA = "cuda"


def usable(device: str) -> bool:
    """Whether something can be measured there; another device than CUDA is for tests."""
    return device != CUDA or torch.cuda.is_available()
