"""Where the machine is sampled, and where not."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from trainperf.recording.machine import probe as module
from trainperf.recording.machine.probe import (
    MachineProbe,
    devices_of,
    is_first_of_host,
    machine_probe,
)


CPU = torch.device("cpu")


def test_it_is_sampled_unless_somebody_does_not_want_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the variable, for scripts that one cannot change; or because nothing is written."""
    monkeypatch.delenv("TRAINPERF_MACHINE", raising=False)
    assert isinstance(machine_probe(tmp_path, 0, CPU)[0], MachineProbe)
    assert machine_probe(None, 0, CPU) == []

    monkeypatch.setenv("TRAINPERF_MACHINE", "0")
    assert machine_probe(tmp_path, 0, CPU) == []


def test_trainings_that_take_turns_are_not_each_others_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`trainperf prove` runs two at once."""
    monkeypatch.delenv("TRAINPERF_MACHINE", raising=False)
    monkeypatch.setattr(module, "directory", lambda: tmp_path)

    assert machine_probe(tmp_path, 0, CPU) == []


@pytest.mark.parametrize(
    ("rank", "variable", "value", "first"),
    [
        (0, "LOCAL_RANK", "0", True),
        (8, "LOCAL_RANK", "0", True),
        (9, "LOCAL_RANK", "1", False),
        (8, "SLURM_LOCALID", "0", True),
        (3, "OMPI_COMM_WORLD_LOCAL_RANK", "3", False),
        (0, "NONE", "", True),
        (1, "NONE", "", False),
    ],
)
def test_one_rank_of_a_host_samples_it(
    rank: int, variable: str, value: str, monkeypatch: pytest.MonkeyPatch, *, first: bool
) -> None:
    """As the launcher says; where none does, rank 0 stands for its host."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)

    assert is_first_of_host(rank) is first


def test_the_devices_of_a_host_are_those_its_ranks_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank has one, several have all that are visible."""
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 3)
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda place: SimpleNamespace(
            uuid=f"1b2c-{place.index}", major=8, minor=0, L2_cache_size=0
        ),
    )
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    second = torch.device("cuda", 1)
    assert devices_of(CPU) == []
    assert devices_of(second) == ["1b2c-1"]
    assert devices_of(torch.device("cuda")) == ["1b2c-0"]

    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert devices_of(second) == ["1b2c-0", "1b2c-1", "1b2c-2"]
