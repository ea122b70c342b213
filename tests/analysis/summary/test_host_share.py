"""A rank's share of its host, from planted headers of all ranks."""

from collections.abc import Sequence

import pytest
from support.runs import make_info

from trainperf.analysis.summary.host_share import host_share
from trainperf.analysis.summary.schema import HostShare
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


def share(infos: Sequence[RunInfo]) -> HostShare:
    """Of the rank that has least."""
    result = host_share(infos)
    assert result is not None
    return result


def test_ranks_launched_together_on_some_cpus_share_those() -> None:
    """Eight ranks under `taskset -c 0-15` on 64 CPUs have two each, not eight."""
    assert share([header(rank) for rank in range(8)]).cpus_per_rank == 2


def test_a_share_that_the_launcher_has_bound_is_not_divided_again() -> None:
    """Two CPUs each, no two ranks on the same."""
    masks = [f"{2 * rank}-{2 * rank + 1}" for rank in range(8)]

    assert share([header(r, mask=mask, cpus=2) for r, mask in enumerate(masks)]).cpus_per_rank == 2


def test_a_quota_is_shared_whatever_the_masks_allow() -> None:
    """A container with two CPUs' time on 64, and eight ranks in it."""
    ranks = [header(rank, mask="0-63", cpus=2, every=2) for rank in range(8)]

    assert share(ranks).cpus_per_rank == 0.25


@pytest.mark.parametrize(("hosts", "here"), [("aaaaaaaa", 8), ("aaaabbbb", 4), ("aaab", 7)])
def test_without_a_launcher_ranks_share_a_host_by_its_name(hosts: str, here: int) -> None:
    """Spawned ranks have no `LOCAL_WORLD_SIZE`; four of them left no file, and may be anywhere."""
    ranks = [header(rank, host=host) for rank, host in enumerate(hosts)]

    assert share(ranks[:1] if here == 8 else ranks).ranks == here


def test_the_launcher_knows_better_than_names() -> None:
    """Of sixteen ranks on two hosts of one name, eight are here."""
    ranks = [header(rank, here=8, world_size=16, mask="0-63", cpus=64) for rank in range(16)]

    assert share(ranks).ranks == 8
    assert share(ranks).cpus_per_rank == 8


def test_the_rank_that_has_least_is_the_one_that_is_told() -> None:
    """Seven ranks have four CPUs each; rank 5 has one."""
    masks = [f"{4 * rank}-{4 * rank + 3}" for rank in range(8)]
    masks[5] = "20"
    told = share([header(r, mask=mask, cpus=4) for r, mask in enumerate(masks)])

    assert (told.rank, told.cpus_per_rank) == (5, 1)
    assert (told.threads, told.workers) == (4, 2)


def test_what_the_kernel_works_is_that_of_the_rank_for_which_it_works_most() -> None:
    """Half of a CPU of one rank, and a quarter of one of the other."""
    sums = [{"span_ns": 1000, "kernel_ns": spent} for spent in (500, 250)]

    result = host_share([header(0, world_size=2), header(1, world_size=2)], sums)

    assert result is not None
    assert result.kernel == 0.5


def test_nothing_known_is_no_share() -> None:
    """A run of an early release."""
    assert host_share([make_info()]) is None
