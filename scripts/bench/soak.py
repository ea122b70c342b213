"""Soak test: a million simulated steps through the real monitor and file, in constant memory.

    python -m scripts.bench.soak [--steps N] [--json FILE]

Clock and device are simulated, so that nothing waits; recorder, probes, window and record file are
the real ones.  Memory is read when a tenth of the steps is done, and at the end: it must not grow.
"""

import gc
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import torch

from scripts.bench.harness import arguments, machine_line, write_json
from trainperf.core.phases import Phase
from trainperf.core.steps.records import RunInfo
from trainperf.meters.fold import Reading
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.monitor import Monitor, RunParts
from trainperf.recording.probes.batches import SamplesProbe, TransferProbe
from trainperf.recording.probes.compilation import CompileProbe
from trainperf.recording.probes.device_marks import Mark, MarksProbe
from trainperf.recording.probes.garbage_collector import GarbageProbe
from trainperf.recording.probes.loss import LossProbe
from trainperf.recording.probes.memory import ResidentMemoryProbe
from trainperf.recording.probes.tokens import TokensProbe
from trainperf.recording.sinks.base import Sink
from trainperf.recording.sinks.jsonl import JsonlSink
from trainperf.recording.timeline import DirectBracket
from trainperf.testing import FakeClock, SimulatedDevice


MILLION = 1_000_000
TARGETS = {"bytes_per_step": 200.0, "grown_mb": 1.0}
"""Design §8: at most 200 bytes a step on disk; memory constant, to the noise of the allocator."""


class Reader(Sink):
    """Somebody who looks at the readings, as a logger does, and keeps nothing."""

    name = "reader"

    def __init__(self) -> None:
        self.looks = 0

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """One look."""
        del step, readings
        self.looks += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What the process holds."""

    resident_mb: float
    blocks: int
    """Blocks of memory that Python has handed out."""

    @classmethod
    def now(cls) -> "Footprint":
        """After a collection, so that garbage does not count."""
        gc.collect()
        resident = psutil.Process().memory_info().rss
        return cls(resident_mb=resident / 2**20, blocks=sys.getallocatedblocks())


class SimulatedRun:
    """A loop whose steps take no time but say that they did."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.device = SimulatedDevice(self.clock)
        self.monitor = Monitor(self.clock)
        self.reader = Reader()
        events = DeviceClock(self.device)
        self._marks = MarksProbe(events)
        recorder = self.monitor.recorder
        self._brackets = [
            DirectBracket(partial(recorder.enter, int(phase)), recorder.leave)
            for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
        ]
        mask = torch.ones(4, 128, dtype=torch.int64)
        self._batch = {"input_ids": mask, "attention_mask": mask, "labels": mask}
        self._loss = torch.tensor(2.5)
        self.monitor.start(
            RunParts(
                info=RunInfo(device="cuda"),
                probes=[
                    LossProbe(),
                    SamplesProbe(),
                    TokensProbe(),
                    GarbageProbe(),
                    CompileProbe(),
                    TransferProbe(),
                    ResidentMemoryProbe(),
                    self._marks,
                ],
                sinks=[JsonlSink(path), self.reader],
                device=events,
            )
        )

    def run(self, number: int) -> None:
        """So many steps: the host is 2 ms ahead of a device that is busy for 9 of 10 ms."""
        clock, monitor, mark = self.clock, self.monitor, self._marks.mark
        recorder = monitor.recorder
        forward, backward, optimizer = self._brackets
        for step in range(number):
            recorder.boundary()
            mark(Mark.FETCH_BEGINS)
            recorder.enter(Phase.DATA_WAIT)
            clock.advance(ns=1_000_003 + step % 977)
            recorder.leave()
            mark(Mark.FETCH_ENDS)
            with forward:
                clock.advance(ns=3_000_017)
                self.device.work(3.0)
            mark(Mark.FORWARD_ENDS)
            with backward:
                clock.advance(ns=4_000_039)
                self.device.work(5.0)
            mark(Mark.BACKWARD_ENDS)
            with optimizer:
                clock.advance(ns=2_000_081)
                self.device.work(1.0)
            monitor.micro_batch(self._batch, self._loss, complete=True)
            recorder.last_hook_done()


def soak(steps: int, path: Path) -> dict[str, float | int]:
    """Run the steps; figures of memory, disk and time."""
    run = SimulatedRun(path)
    run.run(steps // 10)
    early = Footprint.now()
    begun = time.thread_time_ns()
    run.run(steps - steps // 10)
    spent_ns = time.thread_time_ns() - begun
    late = Footprint.now()
    run.monitor.finish("finished")
    if run.monitor.guard.faults:
        raise RuntimeError(f"parts were switched off: {run.monitor.guard.faults}")
    return {
        "steps": steps,
        "looks": run.reader.looks,
        "bytes_per_step": round(path.stat().st_size / steps, 1),
        "resident_early_mb": round(early.resident_mb, 1),
        "resident_late_mb": round(late.resident_mb, 1),
        "grown_mb": round(late.resident_mb - early.resident_mb, 2),
        "blocks_grown": late.blocks - early.blocks,
        "us_per_step": round(spent_ns / (steps - steps // 10) / 1e3, 1),
    }


def main() -> None:
    """Run, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--steps", type=int, default=MILLION)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        figures = soak(given.steps, Path(scratch) / "steps-rank0.jsonl")
    print(machine_line())
    for name, figure in figures.items():
        target = f"   target ≤ {TARGETS[name]:g}" if name in TARGETS else ""
        print(f"{name:20}{figure:>14,}{target}")
    write_json(given.json, {**figures, "targets": TARGETS})


if __name__ == "__main__":
    main()
