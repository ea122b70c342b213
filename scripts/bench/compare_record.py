"""Recordings of real loops for the compare bench: identical runs, and some with work added."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from scripts.bench.compare_loops import KINDS, Extra, Make, kinds, train
from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import JobBlock
from trainperf.analysis.run.replay import Replay
from trainperf.comparison.compared_run import SampleFold
from trainperf.core.machine.clocks import HostClock
from trainperf.core.steps.block import StepBlock


Walls = npt.NDArray[np.int64]

WARMUP = 12
LONG, SHORT = 500 + WARMUP, 100 + WARMUP
"""Steps of a run, so that about 500 or 100 are steady."""

CLOCKS: Mapping[str, HostClock] = {"wall": time.perf_counter_ns, "thread": time.thread_time_ns}
"""Wall time, with whatever else the machine does; or the CPU time of the training thread, which
has no share of what others run: what a machine of one's own would look like."""

PAIRS = 5
"""Short runs on either side of a comparison in turns: 500 steps a side."""

PLANTED = 0.03
"""What the work that is added should make of a step."""

MANY = 40
"""Units of work with which the search for as many as are needed begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One run: its steady steps, in their order."""

    session: str
    split: str
    kind: str
    mode: str
    """`long`, or one of `turns` (identical) and `planted` (every other run has work added)."""
    process: str
    """`same` as the run before it, or `fresh`."""
    extra: int
    """Units of work added to every step."""
    truth: float
    """What they make of a step, by steps with and without in turns within a run; 0 for none."""
    began_s: float
    """On the session's clock."""
    walls: Walls
    """Nanoseconds."""
    clock: str = "wall"
    """Whose nanoseconds: see `CLOCKS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of what a session records."""

    clock: str = "wall"
    long: int = 18
    turns: int = 2
    """Groups of `PAIRS` pairs of short runs, all of them alike."""
    planted: int = 2
    """As many in which every other run has work added."""
    fresh: int = 0
    """Long runs that have a process of their own, instead of all others."""
    by_turns: int = 0
    """Comparisons of runs that take turns ten steps at a time, all of them alike."""
    by_turns_planted: int = 0
    """As many in which one side has work added."""


def session(name: str, split: str, plan: Plan) -> Iterator[RecordedRun]:
    """Record one: every kind of the split in turn."""
    torch.set_num_threads(1)
    for kind, make in kinds(split):
        if plan.fresh:
            yield from (_fresh(name, split, kind) for _ in range(plan.fresh))
            continue
        bench = Bench(session=name, split=split, kind=kind, make=make, clock=plan.clock)
        yield from (bench.recorded("long", LONG) for _ in range(plan.long))
        yield from (bench.recorded("turns", SHORT) for _ in range(2 * PAIRS * plan.turns))
        units, truth = bench.calibrated() if plan.planted else (0, 0.0)
        for number in range(2 * PAIRS * plan.planted):
            added = (units, truth) if number % 2 else (0, 0.0)
            yield bench.recorded("planted", SHORT, *added)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One kind of loop in one session."""

    session: str
    split: str
    kind: str
    make: Make
    clock: str = "wall"

    def recorded(self, mode: str, steps: int, extra: int = 0, truth: float = 0.0) -> RecordedRun:
        """A run of so many steps, recorded and read back."""
        began_s = time.perf_counter()
        steady = self._trained(steps, Extra((extra,)))
        return RecordedRun(
            session=self.session,
            split=self.split,
            kind=self.kind,
            mode=mode,
            process="same",
            extra=extra,
            truth=truth,
            began_s=began_s,
            walls=steady.wall_ns.astype(np.int64),
            clock=self.clock,
        )

    def calibrated(self) -> tuple[int, float]:
        """How many units make a step `PLANTED` longer, and how much longer they really make it."""
        units = MANY
        for _ in range(3):  # the first of a step costs more than the others
            longer = max(self._added(units, LONG // 2), PLANTED / 10)
            units = min(MANY, max(1, round(units * PLANTED / longer)))
        return units, float(np.median([self._added(units, LONG // 2) for _ in range(5)]))

    def _added(self, units: int, steps: int) -> float:
        """Relative: every step against its two neighbours without, which were as slow."""
        steady = self._trained(steps, Extra((0, units)))
        logs = np.full(steps, np.nan)
        logs[steady.index.astype(np.intp)] = np.log(steady.wall_ns)
        apart = logs[1:-1] - (logs[:-2] + logs[2:]) / 2  # of steps 1, 2, …: with, without, …
        return float(np.expm1((np.nanmedian(apart[::2]) - np.nanmedian(apart[1::2])) / 2))

    def _trained(self, steps: int, extra: Extra) -> StepBlock:
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as place:
            return read_back(train(self.make(), steps, Path(place), extra, CLOCKS[self.clock]))


def read_back(path: Path) -> StepBlock:
    """The steady steps of a run of one rank on disk."""
    fold = SampleFold()
    for blocks in Replay(Run.open(path)).blocks():
        fold.observe(JobBlock.of(blocks))
    return fold.sample()[0]


def alone(split: str, kind: str) -> None:
    """One long run, for a process of its own; its steps go to stdout."""
    torch.set_num_threads(1)
    bench = Bench(session="", split=split, kind=kind, make=KINDS[split][kind])
    sys.stdout.write(json.dumps(bench.recorded("long", LONG).walls.tolist()))


def _fresh(name: str, split: str, kind: str) -> RecordedRun:
    began_s = time.perf_counter()
    call = [sys.executable, "-m", "scripts.bench.compare", "alone", split, kind]
    process = subprocess.run(call, check=True, capture_output=True, env=dict(os.environ))
    return RecordedRun(
        session=name,
        split=split,
        kind=kind,
        mode="long",
        process="fresh",
        extra=0,
        truth=0.0,
        began_s=began_s,
        walls=np.array(json.loads(process.stdout), dtype=np.int64),
    )


def write(path: Path, runs: Sequence[RecordedRun]) -> None:
    """All of a session in one file: integer nanoseconds, and who they are as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    heads = [{**asdict(run), "walls": len(run.walls)} for run in runs]
    walls = np.concatenate([run.walls for run in runs])
    np.savez_compressed(path, walls=walls, heads=np.array(json.dumps(heads)))


def read(folder: Path, split: str) -> list[RecordedRun]:
    """The runs of all sessions of a split, in the order in which they were recorded."""
    runs: list[RecordedRun] = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as kept:
            heads, walls, place = json.loads(str(kept["heads"])), kept["walls"], 0
        for head in heads:
            number = head["walls"]
            own = walls[place : place + number].astype(np.int64)
            place += number
            head.pop("paces_ns", None)  # of recordings made while runs had them
            runs.append(RecordedRun(**{**head, "walls": own}))
    return [run for run in runs if run.split == split]
