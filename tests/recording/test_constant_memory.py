"""A fit of any length needs the memory of a short one."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import ClassVar

import pytest
import torch

from trainperf.core.phases import Gap, Phase
from trainperf.core.steps.records import RunInfo
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.monitor import Monitor, RunParts
from trainperf.recording.probes.device_marks import Mark, MarksProbe
from trainperf.recording.probes.loss import LossProbe
from trainperf.recording.probes.tokens import TokensProbe
from trainperf.recording.sinks.base import Sink
from trainperf.testing import FakeClock, SimulatedDevice


class Forgetting(Sink):
    """Asks for everything, keeps nothing."""

    name: ClassVar[str] = "forgetting"

    def readings(self, step: int, readings: object) -> None:
        """Being defined, it has the readings folded."""


def grown(steps: Callable[[int], None], number: int) -> int:
    """Bytes that a quarter of so many steps leaves behind, of the last two the one with less.

    The first ones may still fill caches and sketches, and another thread may keep something once.
    """
    tracemalloc.start()
    try:
        held = []
        for _ in range(4):
            steps(number // 4)
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
        return min(held[2] - held[1], held[3] - held[2])
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("steps", [6_000, pytest.param(99_000, marks=pytest.mark.slow)])
def test_steps_leave_nothing_behind(steps: int) -> None:
    """Steps, gaps, groups, rows, readings, histograms: each is bounded."""
    clock = FakeClock()
    device = SimulatedDevice(clock)
    events = DeviceClock(device)
    marks = MarksProbe(events)
    monitor = Monitor(clock)
    probes = [marks, LossProbe(), TokensProbe()]
    monitor.start(
        RunParts(info=RunInfo(device="cuda"), probes=probes, sinks=[Forgetting()], device=events)
    )
    recorder = monitor.recorder
    batch, loss = {"attention_mask": torch.ones(2, 8, dtype=torch.int64)}, torch.ones(())

    def run(steps: int) -> None:
        for _ in range(steps):
            recorder.boundary()
            marks.mark(Mark.FETCH_BEGINS)
            recorder.enter(Phase.FORWARD)
            clock.advance(ms=1)
            device.work(0.5)
            recorder.leave()
            marks.mark(Mark.BACKWARD_ENDS)
            monitor.micro_batch(batch, loss, complete=True)
            recorder.last_hook_done()
            if recorder.index % 100 == 0:
                recorder.epoch_ended()
                recorder.enter_gap(Gap.CHECKPOINT)
                recorder.leave()

    assert grown(run, steps) < 10_000

    assert monitor.guard.faults == {}
    assert events.dropped == 0
    monitor.finish("finished")
    assert monitor.progress == {"steps": steps, "tokens_effective": 16 * steps}
