"""What the device lost to the loader, to copies and to the host, against planted truth."""

from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from support.fits import Loader, Model, Sleeper, awake, fit
from support.gpu import DEVICE, ON_GPU, DeviceWork, known, plain_loop


pytestmark = pytest.mark.gpu

STEPS = 24
SETTLED = 4
"""Steps left out at the start: kernels are loaded, and the queue is still empty."""


def small() -> torch.nn.Module:
    """A model that takes the device microseconds."""
    return torch.nn.Linear(4, 1).to(DEVICE)


class Chain(torch.nn.Module):
    """Many operators in a row, each as wide as asked."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(width, device=DEVICE))
        self.length = length

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """Multiply again and again."""
        for _ in range(self.length):
            data = data @ self.weight
        return data


class Moved(Model):
    """Copies tensors that it does not all use."""

    def loss(self, batch: Any) -> torch.Tensor:
        """Of the small one."""
        loss: torch.Tensor = self.layer(batch["x"]).mean()
        return loss


@pytest.mark.real_clock
def test_a_slow_loader_before_an_idle_device_stalls_it(tmp_path: Path) -> None:
    """The device waits as long as the loader sleeps: at least four fifths of it, not more."""
    sleeper = Sleeper(0.02)
    ran = plain_loop(tmp_path, small(), Loader(STEPS, slow=sleeper), torch.cuda.synchronize)
    stalled, slept = known(ran, "data_stall_ns"), sleeper.slept_ns
    shares = [a / b for a, b in zip(stalled, slept, strict=True)][SETTLED:]
    assert 0.8 <= median(shares) <= 1.2


@pytest.mark.real_clock
def test_a_slow_loader_behind_queued_work_stalls_nothing(tmp_path: Path) -> None:
    """The same sleep, with the device a step or more behind: the wait costs nothing."""
    sleeper, work = Sleeper(0.01), DeviceWork()
    work.queue(200)
    ran = plain_loop(tmp_path, small(), Loader(STEPS, slow=sleeper), lambda: work.queue(40))
    stalled, slept = known(ran, "data_stall_ns"), sleeper.slept_ns
    assert sum(stalled[SETTLED:]) <= 0.05 * sum(slept[SETTLED:])


@pytest.mark.real_clock
def test_many_small_operators_leave_the_device_waiting_for_the_host(tmp_path: Path) -> None:
    """When backward returns the device has caught up in nearly every step: host-bound."""
    ran = plain_loop(tmp_path, Chain(200, 4), Loader(100), awake)
    leads = known(ran, "lead_backward")[SETTLED:]
    assert sum(lead == 0 for lead in leads) >= 0.95 * len(leads)


@pytest.mark.real_clock
def test_large_multiplications_leave_the_host_far_ahead(tmp_path: Path) -> None:
    """The device is behind in nearly every step, and falls further behind: not host-bound."""
    data = torch.ones(8192, 4096).pin_memory()
    ran = plain_loop(tmp_path, Chain(4, 4096), Loader(STEPS, batch=data), awake)
    leads = known(ran, "lead_backward")[SETTLED:]
    assert sum(lead == 0 for lead in leads) <= 0.05 * len(leads)


def test_the_bytes_of_every_batch_are_exact(tmp_path: Path) -> None:
    """Bytes and tensors of a nested batch, and a device time for each copy."""
    batch = {
        "x": torch.ones(8, 4).pin_memory(),
        "images": [torch.zeros(16, 3, 224, 224, dtype=torch.uint8).pin_memory()],
        "labels": torch.zeros(16, dtype=torch.int64).pin_memory(),
    }
    ran = fit(tmp_path, Moved(), Loader(STEPS, batch=batch), **ON_GPU)
    size = 8 * 4 * 4 + 16 * 3 * 224 * 224 + 16 * 8
    assert known(ran, "h2d_bytes") == [size] * STEPS
    assert known(ran, "h2d_tensors") == [3] * STEPS
    assert min(known(ran, "h2d_device_ns")) > 0


@pytest.mark.real_clock
def test_the_device_time_of_a_copy_is_that_of_the_profiler(tmp_path: Path) -> None:
    """The median of 256 MiB copies from pinned memory, to 20 % of CUPTI's own."""
    data = torch.ones(2**24, 4).pin_memory()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        ran = plain_loop(tmp_path, small(), Loader(STEPS, batch=data), torch.cuda.synchronize)
    copies_us = [
        event.time_range.elapsed_us()
        for event in profile.events() or ()
        if event.name.startswith("Memcpy HtoD")
    ]
    # Whatever else is copied in a run is small.
    large_us = sorted(copies_us)[-STEPS:]
    assert len(large_us) == STEPS
    ours_us = [spent / 1e3 for spent in known(ran, "h2d_device_ns")]
    assert median(ours_us) == pytest.approx(median(large_us), rel=0.2)
    assert known(ran, "h2d_bytes") == [data.nbytes] * STEPS
