"""Tests on a real CUDA device: skipped cleanly where there is none."""

import logging
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def cuda() -> Iterator[None]:
    """A device that is idle before and after each test."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.cuda.synchronize()
    yield
    torch.cuda.synchronize()
