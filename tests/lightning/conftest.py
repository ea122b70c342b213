"""What all fits of this folder share."""

import logging

import pytest
from support.threads import one_thread


__all__ = ["one_thread"]


@pytest.fixture(autouse=True, scope="session")
def quiet_lightning() -> None:
    """Lightning says which accelerators exist, once per fit."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
