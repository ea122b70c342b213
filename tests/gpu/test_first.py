"""What is looked at first on a GPU: each of the claims that nothing here can decide."""

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest
import torch
from support.device.two_ranks import LATE_MS, start_nccl, tails_ms
from support.fits import Loader
from support.gpu import DEVICE, SIMULATED, Graph, known, plain_loop
from support.ranks import free_port
from torch import multiprocessing, nn

from trainperf.accelerators import accelerator_of
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.machine.devices import DeviceSource, nvml_of


pytestmark = [pytest.mark.gpu, pytest.mark.first]

needs_cuda = pytest.mark.skipif(SIMULATED, reason="needs a CUDA device")

RECORDED = 2000

Told = Callable[[str, object], None]
"""Writes a value beside the test's outcome."""


@needs_cuda
def test_a_mark_costs_microseconds(record_property: Told) -> None:
    """Seven of them a step are 0.1 % of 50 ms."""
    clock = DeviceClock(accelerator_of(torch.device(DEVICE)))
    for _ in range(2):  # the first round makes the events
        begun = time.perf_counter_ns()
        events = [clock.mark() for _ in range(RECORDED)]
        each_us = (time.perf_counter_ns() - begun) / RECORDED / 1e3
        torch.accelerator.synchronize()
        clock.release([event for event in events if event is not None])
    record_property("mark_us", round(each_us, 2))
    assert each_us < 10.0


@pytest.mark.parametrize("mode", ["global", "thread_local"])
def test_a_graph_is_captured_and_replayed_inside_a_measured_loop(mode: str, tmp_path: Path) -> None:
    """No query of ours ends the capture, and all steps have their losses.

    One that is its thread's alone goes on while steps are measured in this one.
    """
    total, graph, steps = torch.zeros(2, device=DEVICE), Graph(), iter(range(100))
    torch.accelerator.synchronize()
    begun, over = Event(), Event()

    def capture() -> None:
        with graph.capture(mode):
            total.add_(1.0)
            begun.set()
            over.wait()

    beside = Thread(target=capture)

    class Captures(nn.Linear):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            number = next(steps)
            if number == 5 and mode == "thread_local":
                beside.start()
                begun.wait()
            elif number == 20:
                over.set()
                if beside.is_alive():
                    beside.join()
                else:
                    capture()
            elif number > 20:
                graph.replay()
            return super().forward(rows)

    assert len(known(plain_loop(tmp_path, Captures(4, 1, device=DEVICE), Loader(60)), "loss")) == 60
    assert total.tolist() == [39.0] * 2


@needs_cuda
def test_nvml_knows_the_device_that_torch_uses(record_property: Told) -> None:
    """By its name, also where it is a part of one (MIG) or the order is not PCI's."""
    accelerator = accelerator_of(torch.device(DEVICE))
    nvml, why = nvml_of([accelerator.features().uuid])
    assert nvml is not None, why
    (sampled,) = DeviceSource(nvml, [accelerator.features().uuid]).devices
    record_property("nvml_name", sampled.name)
    assert sampled.name in accelerator.name()


@needs_cuda
def test_the_tail_of_nccl_is_what_a_rank_waits_for(tmp_path: Path, record_property: Told) -> None:
    """With one device it is measured, and short; with two the first waits for the second."""
    ranks = min(2, torch.cuda.device_count())
    multiprocessing.spawn(start_nccl, (tmp_path, free_port()), nprocs=ranks)  # type: ignore[no-untyped-call]
    tails = tails_ms(tmp_path, ranks)
    record_property("tails_ms", str([round(tail, 3) for tail in tails]))
    assert tails[0] > 0.6 * LATE_MS if ranks == 2 else 0 < tails[0] < LATE_MS
