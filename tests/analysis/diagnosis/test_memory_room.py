"""Room in memory: whose the capacity is, and how much of it one rank may fill."""

import pytest
from support.accounts import facts_of, on_gpu, step

from trainperf.analysis.diagnosis.account import DeviceAccount
from trainperf.analysis.diagnosis.memory_room import room_for
from trainperf.core.machine.backends import CUDA, MPS, Backend


GIB = 1 << 30
CAPACITY = 64 * GIB

DEVICES = {
    "a device's own": (on_gpu(), CUDA, 1),
    "the host's, shared with the device": (on_gpu(), MPS, 4),
    "the host's, without a device": (None, CUDA, 4),
}
"""What the step ran on, and by how many of the host's four ranks its memory is shared."""


def room(
    account: DeviceAccount | None, device: Backend, peak: int, **ranks: int
) -> tuple[float, float] | None:
    """For as much as now, where one of some ranks takes *peak* GiB."""
    facts = facts_of(
        device=device,
        readings={"resident_peak_bytes": peak * GIB},
        settings={"device_memory_bytes": CAPACITY, **ranks},
        world_size=8,
    )
    return room_for(step(forward=50, device=account), facts)


@pytest.mark.parametrize(("account", "device", "ranks"), DEVICES.values(), ids=DEVICES)
def test_ranks_of_a_host_share_memory_that_is_the_hosts(
    account: DeviceAccount | None, device: Backend, ranks: int
) -> None:
    """Each has its part of the capacity, of which a fifth stays free."""
    assert room(account, device, 12, local_world_size=4) == (12 * GIB, CAPACITY / ranks)
    room_for_fourteen = room(account, device, 14, local_world_size=4)
    assert (room_for_fourteen is None) is (ranks == 4)


@pytest.mark.parametrize(("account", "device", "ranks"), DEVICES.values(), ids=DEVICES)
def test_all_ranks_are_taken_to_be_of_one_host_where_nobody_says(
    account: DeviceAccount | None, device: Backend, ranks: int
) -> None:
    """Too little room is said rather than too much."""
    assert room(account, device, 6) == (6 * GIB, CAPACITY / (1 if ranks == 1 else 8))
