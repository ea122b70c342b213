"""Fits in tests run on one thread, so that two noisy cores do not share a tiny matrix."""

import logging
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Steadier times for models that need no second thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    yield
    torch.set_num_threads(threads)
