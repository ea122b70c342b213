"""Memory and processors of a process in planted control groups."""

from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from trainperf.core.machine.limits import (
    cpu_count,
    cpus_listed,
    host_cores,
    host_cpus,
    listed,
    memory_bytes,
    share_of_rank,
)


TOTAL = psutil.virtual_memory().total
CPUS = len(psutil.Process().cpu_affinity())
LIMIT = 64 << 20


def machine(root: Path, groups: str, files: Mapping[str, str]) -> Path:
    """What the kernel would show below `/`."""
    shown = {f"sys/fs/cgroup/{name}": said for name, said in files.items()}
    for name, said in {"proc/self/cgroup": groups, **shown}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{said}\n")
    return root


@pytest.mark.parametrize(
    ("groups", "file"),
    [
        ("0::/", "memory.max"),
        ("0::/job/step", "job/step/memory.max"),
        ("0::/job/step", "job/memory.max"),
        ("0::/unseen/from/here", "memory.max"),
        ("9:cpu:/\n4:memory:/docker/1\n0::/", "memory/docker/1/memory.limit_in_bytes"),
        ("4:cpuset,memory:/docker/1", "memory/memory.limit_in_bytes"),
    ],
)
def test_a_limit_of_any_group_around_the_process_is_its_memory(
    groups: str, file: str, tmp_path: Path
) -> None:
    """Version 2 and 1; its own group, one around it, or the one that its container shows."""
    assert memory_bytes(machine(tmp_path, groups, {file: str(LIMIT)})) == LIMIT


def test_the_smallest_of_several_limits_holds(tmp_path: Path) -> None:
    """An inner group may ask for more than the outer one has."""
    files = {"job/memory.max": str(LIMIT), "job/step/memory.max": str(2 * LIMIT)}

    assert memory_bytes(machine(tmp_path, "0::/job/step", files)) == LIMIT


@pytest.mark.parametrize("said", ["max", "9223372036854771712"])
def test_without_a_limit_it_is_all_the_memory_there_is(said: str, tmp_path: Path) -> None:
    """In the words of version 2, and in the number that version 1 has for it."""
    files = {"memory.max": said, "memory/memory.limit_in_bytes": said}

    assert memory_bytes(machine(tmp_path, "0::/\n4:memory:/", files)) == TOTAL
    assert memory_bytes(tmp_path / "no such machine") == TOTAL


@pytest.mark.parametrize(
    ("groups", "files", "count"),
    [
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/job", {"job/cpu.max": "max 100000", "cpu.max": "100000 100000"}, 1),
        ("0::/", {"cpu.max": "max 100000"}, CPUS),
        (
            "3:cpu,cpuacct:/",
            {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"},
            1,
        ),
        ("3:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, CPUS),
        ("", {}, CPUS),
    ],
)
def test_a_quota_of_processor_time_is_so_many_processors(
    groups: str, files: Mapping[str, str], count: int, tmp_path: Path
) -> None:
    """Half a processor counts as one; no quota leaves those that the process may run on."""
    assert cpu_count(machine(tmp_path, groups, files)) == count


def test_processes_of_one_container_share_its_quota_and_else_the_whole_machine(
    tmp_path: Path,
) -> None:
    """However few of its processors this process may run on."""
    quota = machine(tmp_path, "0::/", {"cpu.max": "100000 100000"})

    assert host_cpus(quota) == 1
    assert (host_cores(quota) or 1) <= 1
    assert host_cpus(tmp_path / "no such machine") == psutil.cpu_count()


@pytest.mark.parametrize(
    ("cpus", "mask"),
    [((), ""), ((5,), "5"), ((0, 1, 2, 16), "0-2,16"), ((3, 1, 7, 8), "1,3,7-8")],
)
def test_a_mask_is_written_as_linux_writes_it_and_read_back(
    cpus: tuple[int, ...], mask: str
) -> None:
    """As ranges, in order."""
    assert listed(cpus) == mask
    assert cpus_listed(mask) == frozenset(cpus)


@pytest.mark.parametrize("mask", ["0-", "a", "1-2-3", "0-9999999"])
def test_a_damaged_mask_is_none(mask: str) -> None:
    """It came from a file, and fills no memory."""
    assert cpus_listed(mask) == frozenset()


@pytest.mark.parametrize(
    ("usable", "every", "ranks", "share"),
    [(8, 64, 8, 8), (64, 64, 8, 8), (2, 2, 8, 0.25), (16, None, 4, 4), (None, 64, 8, None)],
)
def test_a_share_is_a_ranks_own_mask_or_its_part_of_the_host(
    usable: int | None, every: int | None, ranks: int, share: float | None
) -> None:
    """Whichever is less."""
    assert share_of_rank(usable, every, ranks) == share
