"""For modules whose tests collect garbage again and again: what is there before them is left out.

Import the fixture `frozen`.
"""

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """A collection then takes milliseconds, and else a fourth of a second late in a session."""
    gc.collect()
    gc.freeze()
