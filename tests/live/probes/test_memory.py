"""Memory is sampled, because reading it costs."""

import psutil
import pytest
import torch
from support_live import HostFit

from trainperf.monitor import SAMPLE_EVERY_NS
from trainperf.probes.memory import DeviceMemoryProbe, ResidentMemoryProbe


def test_the_resident_set_is_sampled_four_times_a_second_at_most() -> None:
    """Steps of 100 ms: every third has a value."""
    fit = HostFit(ResidentMemoryProbe()).steps(10, ms=100).finish()

    measured = [value is not None for value in fit.facts("resident_bytes")]
    assert measured == [True, False, False] * 3 + [True]
    assert SAMPLE_EVERY_NS == 250_000_000


def test_a_slow_step_is_always_sampled() -> None:
    """One value a step where steps are longer than that."""
    fit = HostFit(ResidentMemoryProbe()).steps(4, ms=400).finish()

    assert None not in fit.facts("resident_bytes")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device holds something here")
def test_the_device_is_asked_as_rarely() -> None:
    """Where nothing was allocated all four values are zero, which is a measurement."""
    fit = HostFit(DeviceMemoryProbe(torch.device("cuda"))).steps(7, ms=100).finish()

    for name in DeviceMemoryProbe.facts:
        measured = [value is not None for value in fit.facts(name)]
        assert measured == [True, False, False, True, False, False, True], name


def test_the_sample_is_this_process() -> None:
    """Within a factor of two: the test does not know what else it holds."""
    fit = HostFit(ResidentMemoryProbe()).steps(1).finish()
    (value,) = fit.facts("resident_bytes")
    now = psutil.Process().memory_info().rss

    assert value is not None
    assert now / 2 < value < now * 2
