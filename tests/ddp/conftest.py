"""Two real ranks over gloo, started once; the tests read what they left."""

from pathlib import Path

import pytest
from support.ranks import Ranks, start_two


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    """All fits of two ranks."""
    root = tmp_path_factory.mktemp("ranks")
    start_two(Path(__file__).parent / "ranks.py", root)
    return Ranks(root)
