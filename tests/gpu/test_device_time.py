"""What the device lost to the loader, to copies and to the host, against planted truth."""

from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from support.fits import Loader, Model, Sleeper, fit
from support.gpu import (
    DEVICE,
    SIMULATED,
    DeviceWork,
    backend,
    copies_us,
    known,
    plain_loop,
    slow_copies,
    slow_host,
    trainer_options,
)


pytestmark = pytest.mark.gpu

STEPS = 24
SETTLED = 4
"""Steps left out at the start: kernels are loaded, and the queue is still empty."""


def small() -> torch.nn.Module:
    """A model that takes the device microseconds."""
    return torch.nn.Linear(4, 1).to(DEVICE)


class Chain(torch.nn.Module):
    """Many small operators in a row."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(4, device=DEVICE))
        self.length = length

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """Multiply again and again."""
        for _ in range(self.length):
            data = data @ self.weight
        return data


class Heavy(torch.nn.Linear):
    """One call that takes the device long."""

    def __init__(self, ms: float) -> None:
        super().__init__(4, 1, device=DEVICE)
        self.ms, self.work = ms, DeviceWork()

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """Queue the work, and come back."""
        self.work.queue(self.ms)
        return super().forward(data)


class Moved(Model):
    """Copies tensors that it does not all use."""

    def loss(self, batch: Any) -> torch.Tensor:
        """Of the small one."""
        return self.layer(batch["x"]).mean()


@pytest.mark.first
def test_a_slow_loader_before_an_idle_device_stalls_it(tmp_path: Path) -> None:
    """The device waits as long as the loader sleeps: nearly all of it, and not more."""
    sleeper = Sleeper(0.02)
    ran = plain_loop(tmp_path, small(), Loader(STEPS, slow=sleeper), backend().synchronize)
    stalled, slept = known(ran, "data_stall_ns"), sleeper.slept_ns
    shares = [a / b for a, b in zip(stalled, slept, strict=True)][SETTLED:]
    assert 0.8 <= median(shares) <= 1.3


@pytest.mark.first
def test_a_slow_loader_behind_queued_work_stalls_nothing(tmp_path: Path) -> None:
    """The same sleep, with the device a step or more behind: the wait costs nothing."""
    sleeper, work = Sleeper(0.01), DeviceWork()
    work.queue(200)
    ran = plain_loop(tmp_path, small(), Loader(STEPS, slow=sleeper), lambda: work.queue(40))
    stalled, slept = known(ran, "data_stall_ns"), sleeper.slept_ns
    assert sum(stalled[SETTLED:]) <= 0.05 * sum(slept[SETTLED:])


def test_many_small_operators_leave_the_device_waiting_for_the_host(tmp_path: Path) -> None:
    """When backward returns the device has caught up in nearly every step: host-bound."""
    slow_host()
    leads = known(plain_loop(tmp_path, Chain(60), Loader(40)), "lead_backward")[SETTLED:]
    assert sum(lead == 0 for lead in leads) >= 0.9 * len(leads)


def test_heavy_operators_leave_the_host_far_ahead(tmp_path: Path) -> None:
    """The device is behind in nearly every step, and falls further behind: not host-bound."""
    leads = known(plain_loop(tmp_path, Heavy(50.0), Loader(STEPS)), "lead_backward")[SETTLED:]
    assert sum(lead == 0 for lead in leads) <= 0.05 * len(leads)


def test_the_bytes_of_every_batch_are_exact(tmp_path: Path) -> None:
    """Bytes and tensors of a nested batch, and a device time for each copy."""
    batch = {
        "x": torch.ones(8, 4).pin_memory(),
        "images": [torch.zeros(16, 3, 224, 224, dtype=torch.uint8).pin_memory()],
        "labels": torch.zeros(16, dtype=torch.int64).pin_memory(),
    }
    ran = fit(tmp_path, Moved(), Loader(STEPS, batch=batch), **trainer_options())
    size = 8 * 4 * 4 + 16 * 3 * 224 * 224 + 16 * 8
    assert known(ran, "h2d_bytes") == [size] * STEPS
    assert known(ran, "h2d_tensors") == [3] * STEPS
    assert min(known(ran, "h2d_device_ns")) > 0


def test_the_device_time_of_a_copy_is_what_the_device_tells(tmp_path: Path) -> None:
    """The median of copies from pinned memory, to 20 % of CUPTI's own or of the thread's."""
    data = torch.ones(2 ** (20 if SIMULATED else 24), 4).pin_memory()
    slow_copies(20.0)
    with copies_us() as lengths:
        ran = plain_loop(tmp_path, small(), Loader(STEPS, batch=data), backend().synchronize)
    large_us = sorted(lengths)[-STEPS:]  # whatever else is copied in a run is small
    assert len(large_us) == STEPS
    ours_us = [spent / 1e3 for spent in known(ran, "h2d_device_ns")]
    assert median(ours_us) == pytest.approx(median(large_us), rel=0.2)
    assert known(ran, "h2d_bytes") == [data.nbytes] * STEPS
