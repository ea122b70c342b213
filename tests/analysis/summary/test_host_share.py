"""A rank's share of its host, from planted headers of all ranks."""

import pytest
from support.runs import make_info

from trainperf.analysis.summary.host_share import host_share
from trainperf.core.steps.records import RunInfo


def header(
    rank: int,
    *,
    host: str = "a",
    mask: str = "0-15",
    cpus: int = 16,
    every: int = 64,
    world_size: int = 8,
    here: int | None = None,
) -> RunInfo:
    """Of one rank on a CPU; *here* is what its launcher said of the ranks on its host."""
    hardware = {
        "cpu_count": cpus,
        "host_cpus": every,
        "cpu_mask": mask,
        "host": host,
        "local_world_size": here,
        "threads": 4,
    }
    return make_info(rank=rank, world_size=world_size, hardware=hardware, config={"num_workers": 2})


LEAST = [f"{4 * rank}-{4 * rank + 3}" for rank in range(5)] + ["20"]
"""Five ranks have four CPUs each; rank 5 has one."""

HOSTS: dict[str, tuple[list[RunInfo], dict[str, float]]] = {
    "`taskset -c 0-15` on 64 CPUs": ([header(rank) for rank in range(8)], {"cpus_per_rank": 2}),
    "no two ranks on the same CPUs: not divided again": (
        [header(rank, mask=f"{2 * rank}-{2 * rank + 1}", cpus=2) for rank in range(8)],
        {"cpus_per_rank": 2},
    ),
    "a quota is shared whatever the masks allow": (
        [header(rank, mask="0-63", cpus=2, every=2) for rank in range(8)],
        {"cpus_per_rank": 0.25},
    ),
    # Spawned ranks have no `LOCAL_WORLD_SIZE`; some left no file, and may be anywhere.
    "one of eight left a file": ([header(0)], {"ranks": 8}),
    "two hosts of four": (
        [header(rank, host=host) for rank, host in enumerate("aaaabbbb")],
        {"ranks": 4},
    ),
    "four of eight left a file, one of them elsewhere": (
        [header(rank, host=host) for rank, host in enumerate("aaab")],
        {"ranks": 7},
    ),
    "the launcher knows better: two hosts of one name": (
        [header(rank, here=8, world_size=16, mask="0-63", cpus=64) for rank in range(16)],
        {"ranks": 8, "cpus_per_rank": 8},
    ),
    "the rank that has least is told": (
        [header(r, mask=mask, cpus=4, world_size=6) for r, mask in enumerate(LEAST)],
        {"cpus_per_rank": 1, "threads": 4, "workers": 2},
    ),
}


@pytest.mark.parametrize(("infos", "fields"), HOSTS.values(), ids=HOSTS)
def test_a_rank_has_a_share_of_its_host(infos: list[RunInfo], fields: dict[str, float]) -> None:
    """By masks, quotas, names and what a launcher says."""
    found = host_share(infos)

    assert {name: getattr(found, name) for name in fields} == fields


def test_what_the_kernel_works_is_that_of_the_rank_for_which_it_works_most() -> None:
    """Half of a CPU of one rank, and a quarter of one of the other."""
    sums = [{"span_ns": 1000, "kernel_ns": spent} for spent in (500, 250)]

    assert host_share([header(0, world_size=2), header(1, world_size=2)], sums).kernel == 0.5


def test_nothing_known_is_no_share() -> None:
    """A run of an early release."""
    assert host_share([make_info()]) is None
