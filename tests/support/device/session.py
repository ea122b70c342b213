"""A session of tests on the device: in a process that uses it from the start.

PyTorch starts a thread per device at the first backward pass of a process, and a device that comes
later has none.  So these tests run where pytest is asked for nothing else; in a session of all
tests `test_own_process.py` asks a process of its own for them.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from support.device.build import NoCompilerError
from support.device.frontend import NAME, attach, set_device
from support.device.plants import unplant


TESTS = Path(__file__).parents[2]
FOLDERS = [TESTS / name for name in ("device", "gpu")]
"""Tests that need it; those of the second run on a GPU where there is one."""

OWN_PROCESS = "test_own_process.py"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose between the tests themselves and the one that starts a process for them."""
    alone = all(map(needs_device, asked_paths(config)))
    ours = [item for item in items if needs_device(item.path)]
    others = [item for item in ours if (item.path.name == OWN_PROCESS) is alone]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


def asked_paths(config: pytest.Config) -> list[Path]:
    """Return what this process was asked for."""
    return [Path(config.invocation_params.dir, each.split("::")[0]) for each in config.args]


@cache
def needs_device(path: Path) -> bool:
    """Tell whether tests there run in a process of their own."""
    return any(path.resolve().is_relative_to(folder) for folder in FOLDERS)


@pytest.fixture(scope="session")
def attached() -> None:
    """The device, or a notice why there is none."""
    try:
        attach()
    except NoCompilerError as error:
        pytest.skip(str(error))


@pytest.fixture
def device(attached: None) -> Iterator[torch.device]:
    """A device that is idle and without plants before and after each test."""
    unplant()
    set_device(0)
    yield torch.device(NAME, 0)
    unplant()
