"""Plain loops with planted sleeps, measured by the sleeper itself."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from support.blocks import records_of

from trainperf.core.machine.clocks import HostClock
from trainperf.core.phases import PHASES
from trainperf.core.steps.block import StepSchema
from trainperf.core.steps.codec import Entry, decode_entry, decode_info, decode_steps
from trainperf.core.steps.records import EndMark, GapRecord, RunInfo, StepRecord, Totals
from trainperf.loop import FitOptions, LoopMonitor
from trainperf.loop.fit import Fit
from trainperf.recording.process_objects import nothing
from trainperf.testing import FakeClock


def on_clock(clock: HostClock) -> type[Fit]:
    """A fit by a clock of the test's, to be put in the place of `Fit`."""

    class OnThatClock(Fit):
        def __init__(self, options: FitOptions, *_: object) -> None:
            super().__init__(options, clock)

    return OnThatClock


class Sleeper:
    """Sleeps, or lets a clock pass, and knows how long it took."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock
        self.naps: defaultdict[str, list[float]] = defaultdict(list)

    def sleep(self, where: str, ms: float) -> None:
        """Sleep at a place."""
        now = self.clock or time.perf_counter_ns
        began_ns = now()
        (self.clock or time).sleep(ms / 1e3)
        self.naps[where].append((now() - began_ns) / 1e9)

    def total_s(self, where: str) -> float:
        """Seconds slept at a place."""
        return sum(self.naps[where])


@dataclass(slots=True)
class Loader:
    """Brings so many batches, each after a sleep."""

    sleeper: Sleeper
    number: int
    ms: float = 0.0
    where: str = "data_wait"
    started: int = field(default=0)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        self.started += 1
        for _ in range(self.number):
            self.sleeper.sleep(self.where, self.ms)
            yield {"x": torch.ones(2, 4), "attention_mask": torch.ones(2, 4, dtype=torch.int64)}


@dataclass(frozen=True, slots=True)
class Written:
    """What a rank's record file says."""

    info: RunInfo
    steps: list[StepRecord]
    entries: list[Entry]

    def phase_s(self, phase: str) -> list[float]:
        """Seconds in a phase, step by step."""
        place = [p.label for p in PHASES].index(phase)
        return [step.host_ns[place] / 1e9 for step in self.steps]

    def gap_s(self, gap: str) -> list[float]:
        """Seconds in a gap, each time."""
        return [g.duration_ns / 1e9 for g in self.gaps if g.gap == gap]

    @property
    def steps_s(self) -> float:
        """Seconds in steps."""
        return sum(step.wall_s for step in self.steps)

    @property
    def gaps(self) -> list[GapRecord]:
        """The gaps."""
        return [entry for entry in self.entries if isinstance(entry, GapRecord)]

    @property
    def totals(self) -> Totals:
        """The last cumulative facts."""
        return [entry for entry in self.entries if isinstance(entry, Totals)][-1]

    @property
    def end(self) -> EndMark:
        """The end mark, which is the last line."""
        last = self.entries[-1]
        assert isinstance(last, EndMark)
        return last


def read(path: Path) -> Written:
    """A record file; every line of it must be whole."""
    header, *lines = path.read_bytes().splitlines()
    info = decode_info(header)
    steps = [line for line in lines if line.startswith(b"[")]
    block, damaged = decode_steps(StepSchema(info.columns, info.device), steps)
    entries = [decode_entry(line) for line in lines if not line.startswith(b"[")]
    assert damaged == 0
    whole = [entry for entry in entries if entry is not None]
    assert len(whole) == len(entries)
    return Written(info, records_of(block), whole)


def quiet(path: Path | None, **settings: Any) -> LoopMonitor:
    """A monitor that prints nothing."""
    return LoopMonitor(path, report=False, **settings)


def stepped(
    monitor: LoopMonitor, batches: Iterable[Any], act: Callable[[Any], object] = nothing
) -> LoopMonitor:
    """One epoch, of which each batch is a step in which *act* is called with it; then closed."""
    with monitor:
        for batch in monitor.batches(batches):
            act(batch)
            monitor.end_step()
    return monitor


def update(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler | None) -> None:
    """By the optimizer, under the scaler if there is one; then no gradient is left."""
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    optimizer.zero_grad()


def learn(
    monitor: LoopMonitor,
    optimizer: torch.optim.Optimizer,
    loss: torch.Tensor,
    scaler: torch.amp.GradScaler | None = None,
) -> None:
    """Backward, update and the end of the step, the first two in their phases."""
    with monitor.phase("backward"):
        (loss if scaler is None else scaler.scale(loss)).backward()
    with monitor.phase("optimizer"):
        update(optimizer, scaler)
    monitor.end_step(loss)


def written(monitor: LoopMonitor, rank: int = 0) -> Written:
    """What a closed monitor wrote."""
    return read(monitor.run / f"steps-rank{rank}.jsonl")


def agree(found_s: list[float], planted_s: list[float]) -> bool:
    """Each found duration holds its planted one; half of them to 1 ms.

    Half, because a busy machine may stop us between two clocks; never less, because nothing may.
    """
    pairs = list(zip(found_s, planted_s, strict=True))
    return median(a - b for a, b in pairs) < 1e-3 and all(a - b > -1e-5 for a, b in pairs)
