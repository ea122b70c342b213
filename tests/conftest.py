"""What all tests share."""

import os
import tempfile
from pathlib import Path


# The name, not the constant of `trainperf.audit.chips`: most tests load no torch.
CACHE = "TRAINPERF_CACHE"


def pytest_configure() -> None:
    """The figures of this machine are kept out of the user's cache directory."""
    os.environ.setdefault(CACHE, str(Path(tempfile.gettempdir()) / "trainperf-tests"))
