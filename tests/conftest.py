"""What all tests share."""

import gc
import os
import tempfile
from pathlib import Path

import pytest
from support.browser import browser


__all__ = ["browser"]

# The name, not the constant of `trainperf.audit.chip_cache`: most tests load no torch.
CACHE = "TRAINPERF_CACHE"

ON_A_REAL_CLOCK = {
    "audit",
    "benchmark",
    "commands",
    "comparison",
    "ddp",
    "doctor",
    "gpu",
    "hardware",
    "lightning",
    "live",
    "loaders",
    "loop",
    "profiler",
    "recipes",
    "remedies",
    "reports",
    "scripts",
    "smoke",
    "tensorboard",
    "test_docs_run.py",
    "traces",
    "turns",
}
"""Folders whose tests run real loops, processes or browsers.

Whoever shares the machine only ever adds time, and passes; a wrong number stays.  So what fails
there is tried again, and the summary names it.  Elsewhere clocks are fake and once is enough.
"""

TRIES = 6


def pytest_configure() -> None:
    """The figures of this machine are kept out of the user's cache directory."""
    os.environ.setdefault(CACHE, str(Path(tempfile.gettempdir()) / "trainperf-tests"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give the tests that depend on a real clock more than one try."""
    # A machine without our development packages still runs the tests, each once.
    if not config.pluginmanager.has_plugin("rerunfailures"):
        return
    here = Path(__file__).parent
    patient = pytest.mark.flaky(reruns=TRIES - 1, reruns_delay=1)
    for item in items:
        if item.path.relative_to(here).parts[0] in ON_A_REAL_CLOCK:
            item.add_marker(patient)


def pytest_collection_finish() -> None:
    """Take what is loaded by now out of every later collection: a third of a second each."""
    gc.collect()
    gc.freeze()
