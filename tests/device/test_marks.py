"""Marks of a fit on a device that is behind the host: what they tell, and what they must not do."""

import threading

import pytest
import torch
from support.device import frontend as threaded
from support.device.plants import Graph, no_synchronisation, unplant, work
from support.device_fits import AsynchronousFit

from trainperf.accelerators import accelerator_of
from trainperf.recording.device_clock import DeviceClock


FETCH_S = 0.02
STEPS = 10


@pytest.mark.real_clock
def test_a_wait_of_an_idle_device_is_a_stall(device: torch.device) -> None:
    """It lasts as long as the loader took."""
    fit = AsynchronousFit(device)
    for _ in range(STEPS):
        fit.step(torch.accelerator.synchronize, FETCH_S)
    fit.finish()
    stalled_ns = sum(value or 0 for value in fit.fact("data_stall_ns"))
    assert 0.9 < stalled_ns / sum(fit.slept_ns) < 1.3


@pytest.mark.real_clock
def test_a_wait_behind_queued_work_is_none(device: torch.device) -> None:
    """The loader takes as long, and the device computes meanwhile; no step waits for it."""
    fit = AsynchronousFit(device)
    with no_synchronisation():
        for _ in range(STEPS):
            fit.step(lambda: work(5 * FETCH_S * 1e3), FETCH_S)
    fit.finish()
    behind = [value for value in fit.fact("data_stall_ns")[1:] if value is not None]
    assert len(behind) == STEPS - 1
    assert sum(behind) < sum(fit.slept_ns) / 10


def test_the_lead_grows_while_the_device_is_behind(device: torch.device) -> None:
    """Marks that it has not come to: three a step."""
    fit = AsynchronousFit(device)

    def fall_behind() -> None:
        torch.accelerator.synchronize()  # it has come to the marks of the fetch
        work(60_000.0)

    fit.step(fall_behind)
    for _ in range(STEPS - 1):
        fit.step(lambda: None)
    unplant()
    fit.finish()
    assert fit.fact("lead_forward")[1:] == [3 * step for step in range(1, STEPS)]


def test_the_end_of_a_fit_has_a_deadline(device: torch.device) -> None:
    """Something may hang on the device for good, and the user's exception is behind us."""
    fit = AsynchronousFit(device)
    fit.step(lambda: work(60_000.0))
    ended = threading.Thread(target=fit.finish)
    ended.start()
    ended.join(30.0)
    in_time = not ended.is_alive()
    unplant()
    ended.join()
    assert in_time


def test_a_mark_of_an_idle_stream_is_passed_whatever_another_stream_does(
    device: torch.device,
) -> None:
    """A step may be queued on a side stream and its fetch on the current one."""
    clock = DeviceClock(accelerator_of(device))
    with threaded.stream(torch.Stream(device=device)):
        work(60_000.0)
        clock.mark()
    clock.mark()
    torch.accelerator.current_stream(device).synchronize()
    assert clock.lead() == 1


def test_a_capture_of_the_user_survives_a_measured_step(device: torch.device) -> None:
    """Graphs are captured in the loop, by `torch.cuda.make_graphed_callables` for example."""
    fit = AsynchronousFit(device)
    total = torch.zeros(2, device=device)

    def add() -> None:
        total.add_(1.0)

    fit.step(add)
    graph = Graph()
    with graph.capture():
        fit.step(add)
    graph.replay()
    fit.finish()
    assert total.cpu().tolist() == [2.0] * 2
