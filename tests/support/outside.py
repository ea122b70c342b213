"""What a process under `trainperf run` hears of a plain loop, in the process of a test."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.loops import Written, read
from torch import nn
from torch.nn.modules import module as nn_module
from torch.optim import optimizer as optim_module

from trainperf.core.launch_environment import VARIABLE, LaunchOptions
from trainperf.plugins.outside_updates import ProcessUpdates


@contextmanager
def hearing(options: LaunchOptions) -> Iterator[ProcessUpdates]:
    """What a launched process hears, until the end of this context."""
    gc.collect()  # a monitor that a test before has left is under way until then
    hears = ProcessUpdates()
    handles = (
        optim_module.register_optimizer_step_pre_hook(lambda o, *_: hears.begins(o)),
        optim_module.register_optimizer_step_post_hook(lambda o, *_: hears.ends(o)),
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(VARIABLE, options.environment({})[VARIABLE])
        yield hears
        end(hears)
    for handle in handles:
        handle.remove()
    assert not nn_module._global_forward_pre_hooks


@pytest.fixture
def updates(tmp_path: Path) -> Iterator[ProcessUpdates]:
    """Of a test."""
    words = tmp_path / "words"
    words.mkdir()
    options = LaunchOptions(dirpath=str(tmp_path / "out"), signals=str(words))
    with hearing(options) as hears:
        yield hears


def end(updates: ProcessUpdates) -> None:
    """The script is over, if it was recorded: another loop may come."""
    if updates.loop is not None:
        updates.loop.fit.end()
    assert updates.loop is None


def written(updates: ProcessUpdates, tmp_path: Path, number: int = 0) -> Written:
    """What a recording has left, once the script is over."""
    end(updates)
    name = "trainperf" if not number else f"trainperf-{number}"
    return read(tmp_path / "out" / name / "steps-rank0.jsonl")


def network() -> nn.Module:
    """A model that does next to nothing."""
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
