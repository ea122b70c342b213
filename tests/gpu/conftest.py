"""Tests on an accelerator: a GPU where there is one, else the asynchronous device in threads."""

import logging
from collections.abc import Iterator

import pytest
import torch
from support.device.session import attached, device, pytest_collection_modifyitems
from support.gpu import SIMULATED, allow_waits


__all__ = ["attached", "device", "pytest_collection_modifyitems"]


@pytest.fixture(autouse=True)
def accelerator(request: pytest.FixtureRequest) -> Iterator[None]:
    """A device that is idle before and after each test, and may be waited for."""
    if SIMULATED:
        request.getfixturevalue("device")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.accelerator.synchronize()
    yield
    allow_waits()
    torch.accelerator.synchronize()
