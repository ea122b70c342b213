"""Memory is sampled, because reading it costs."""

from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from support.live import HostFit

from trainperf.accelerators.cuda import Cuda
from trainperf.recording.probes.memory import (
    ANONYMOUS,
    MAPPED,
    DeviceMemoryProbe,
    ResidentMemoryProbe,
    heap,
    status_bytes,
)


def test_the_resident_set_is_sampled_every_ten_milliseconds_at_most() -> None:
    """By a clock on which it costs nothing: in steps of a millisecond, and in longer ones."""
    short = HostFit(ResidentMemoryProbe()).steps(100, ms=1).finish()
    long = HostFit(ResidentMemoryProbe()).steps(20, ms=100).finish()

    sampled = [at for at, value in enumerate(short.facts("resident_bytes")) if value is not None]
    assert sampled == [*range(0, 100, 10), 99]
    assert None not in long.facts("resident_bytes")


def test_the_pages_of_mapped_files_are_not_the_processs_own(tmp_path: Path) -> None:
    """A data set that is mapped and read grows the resident set, and nothing that can leak."""
    size = 64 << 20
    file = tmp_path / "mapped"
    file.write_bytes(bytes(size))
    before = status_bytes()
    if not before:
        pytest.skip("the system does not tell")
    mapped = np.memmap(file, mode="r")
    assert int(mapped.sum()) == 0
    amid = status_bytes()
    kept = np.ones(size // 8)
    after = status_bytes()

    assert amid[MAPPED] - before[MAPPED] > 0.9 * size
    assert amid[ANONYMOUS] - before[ANONYMOUS] < 0.1 * size
    assert after[ANONYMOUS] - amid[ANONYMOUS] > 0.9 * kept.nbytes


def test_what_the_allocator_handed_out_is_exact_though_memory_is_used_again() -> None:
    """The second tensor goes where the first one was: only the third makes it more."""
    in_use = heap()
    if in_use is None:
        pytest.skip("the allocator does not tell")
    size = 4 << 20
    begun = in_use()
    first = torch.ones(size)
    held = in_use() - begun
    del first
    second = torch.ones(size)
    again = in_use() - begun
    third = torch.ones(size)
    both = in_use() - begun

    assert second.numel() == third.numel()
    assert held == pytest.approx(4 * size, rel=0.01)
    assert again == pytest.approx(4 * size, rel=0.01)
    assert both == pytest.approx(8 * size, rel=0.01)


def test_without_a_file_that_tells_nothing_is_told(tmp_path: Path) -> None:
    """Neither where there is none, nor where it says something else."""
    (tmp_path / "status").write_text("VmRSS: 12 kB\nRssAnon: 3 kB\n")

    assert status_bytes(tmp_path / "none") == status_bytes(tmp_path / "status") == {}


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device holds something here")
def test_the_device_is_asked_as_rarely() -> None:
    """Where nothing was allocated all four values are zero, which is a measurement."""
    fit = HostFit(DeviceMemoryProbe(Cuda(torch.device("cuda:0")))).steps(26, ms=4).finish()

    for name in DeviceMemoryProbe.facts:
        measured = [at for at, value in enumerate(fit.facts(name)) if value is not None]
        assert measured == [0, 3, 6, 9, 12, 15, 18, 21, 24, 25], name


def test_retries_and_failures_are_counted_between_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the first reading on: what the warm-up of the process did is not the fit's."""
    readings = iter([(7, 1), (7, 1), (9, 1), (9, 2), (1, 0), (1, 0)])
    asked = iter([40, 43, 43, 44, 44, 44])

    def stats(_: object) -> dict[str, int]:
        retries, failures = next(readings)
        counts = {"num_alloc_retries": retries, "num_ooms": failures}
        return counts | {"num_device_alloc": next(asked)}

    monkeypatch.setattr(torch.cuda, "memory_stats", stats)
    fit = HostFit(DeviceMemoryProbe(Cuda(torch.device("cuda:0")))).steps(4, ms=400).finish()

    # The last reading but one comes after somebody has reset the statistics.
    assert fit.facts("alloc_retries") == [0, 2, 0, 1]
    assert fit.facts("alloc_failures") == [0, 0, 1, 0]
    assert fit.facts("device_allocs") == [3, 0, 1, 0]


def test_the_sample_is_this_process() -> None:
    """Within a factor of two: the test does not know what else it holds."""
    (value,) = HostFit(ResidentMemoryProbe()).steps(1).finish().facts("resident_bytes")
    now = psutil.Process().memory_info().rss

    assert now / 2 < value < now * 2
