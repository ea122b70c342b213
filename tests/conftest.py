"""What all tests share."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import browser, picture
from support.commands import command


__all__ = ["browser", "command", "picture"]

pytest_plugins = ["support.retries"]

# The name, not the constant of `trainperf.audit.chip_cache`: most tests load no torch.
CACHE = "TRAINPERF_CACHE"
MACHINE = "TRAINPERF_MACHINE"


def pytest_configure() -> None:
    """Keep this machine's figures out of the user's cache, and let tests interrupt processes."""
    # A process beside each of hundreds of fits takes longer than they do; tests of it say so.
    os.environ.setdefault(MACHINE, "0")
    os.environ.setdefault(CACHE, str(Path(tempfile.gettempdir()) / "trainperf-tests"))
    # A shell ignores SIGINT for what it starts in the background, and so would every process that
    # a test starts there: Ctrl-C would not end it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def few_resamples() -> Iterator[None]:
    """A fourth of them: what is planted is known to 4 % or to 8 %, and hundreds are compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainperf.comparison.fit_clock.RESAMPLES", 100)
        yield


@pytest.fixture
def one_rank() -> Iterator[None]:
    """A process group of this process alone, with a store that all ranks of a test may use."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """torch.compile as in a fresh process, before and after."""
    import torch

    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()


def pytest_collection_finish() -> None:
    """Take what is loaded by now out of every later collection: a third of a second each."""
    early = sys.modules.get("trainperf.recording.early_lines")
    if early is not None:  # what pytest does before the first fit is no preparation of its script
        early.EARLY_LINES.take()
    gc.collect()
    gc.freeze()
