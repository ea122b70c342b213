"""Importer of DeepSpeed's `wall_clock_breakdown`: lines `time (ms) | fwd: … | bwd: … | step: …`.

The engine prints one such line per micro-batch and one per update, on rank 0.  Releases until 2024
write the time of day before it, later ones do not.  The pipeline engine prints sums over
`steps_per_print` updates and, behind them, `steps: … iter time (s): …`.  Read in DeepSpeed's
sources of August 2026 (`deepspeed/utils/timer.py`, `runtime/engine.py`, `runtime/pipe/engine.py`)
and in logs that its users published.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path

from trainperf.core.phases import Gap, Phase
from trainperf.core.readings import FIRST_STEP_S
from trainperf.core.steps.records import Scalar
from trainperf.importers.base import (
    MS,
    SECOND,
    LogEvent,
    LogFormat,
    LoggedFit,
    LoggedGap,
    LoggedRestart,
    LoggedSteps,
    lines_of,
    phases_ns,
)


_TIMERS = b"time (ms) | "
_TIMER = re.compile(rb"(\w+): ([\d.]+)")
_STAMP = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\]")
_PIPELINE = re.compile(
    rb"steps: (\d+) loss: ([-\w.]+) .*?iter time \(s\): ([\d.]+) samples/sec: ([\d.]+)"
)
_PROGRESS = re.compile(rb"\bstep=(\d+), skipped=(\d+), lr=")
_MEMORY = re.compile(rb"MemAllocated=([\d.]+)GB, MaxMemAllocated=([\d.]+)GB")
_SETTING = re.compile(
    rb"\b(train_batch_size|gradient_accumulation_steps|world_size|zero_optimization_stage"
    rb"|steps_per_print) \.+ (\d+)"
)
_SETTINGS: Mapping[bytes, str] = {
    b"train_batch_size": "batch_size",
    b"gradient_accumulation_steps": "accumulate_grad_batches",
    b"world_size": "job_ranks",
    b"zero_optimization_stage": "zero_stage",
    b"steps_per_print": "steps_per_print",
}
_ENGINE_BEGINS = re.compile(rb"DeepSpeed info: version=|\btrain_batch_size \.+ \d")
"""Printed when an engine is made: behind steps, the job began anew in the same log."""
_SAVING = re.compile(rb"is about to be saved|Saving model checkpoint")
_SAVED = re.compile(rb"is ready now|\[Torch\] Saved|zero checkpoint saved")

_ENGINE = {b"fwd": Phase.FORWARD, b"bwd": Phase.BACKWARD, b"step": Phase.OPTIMIZER}


def read(files: Sequence[Path]) -> list[LoggedFit]:
    """One fit for each file, as a restart writes a log of its own."""
    fits = []
    for file in files:
        first = next((line for line in lines_of(file) if _is_update(line)), b"")
        fit = LoggedFit(events=iter(()), started_at=_started_at(first))
        if fit.started_at:
            fit.notes["clock"] = "times of day are the log's own and taken for UTC"
        fit.events = _Reader(file, fit).events()
        fits.append(fit)
    return fits


def _is_update(line: bytes) -> bool:
    return _TIMERS in line and b"fwd: " in line


def _moment(line: bytes) -> datetime | None:
    """Time of day of a line; `None` where it has none."""
    stamp = _STAMP.search(line)
    if stamp is None:
        return None
    return datetime.fromisoformat(f"{stamp[1].decode()}.{stamp[2].decode()}")


def _started_at(first: bytes) -> str:
    """When the first update of an attempt was over: nothing before it has a time."""
    at = _moment(first)
    return "" if at is None else f"{at.isoformat()}+00:00"


class _Reader:
    """One log while it is read."""

    def __init__(self, file: Path, fit: LoggedFit) -> None:
        self._file, self._fit = file, fit
        self._begin()

    def _begin(self) -> None:
        """An attempt, whose times, checkpoints and counts are its own."""
        self._began: datetime | None = None
        self._last_ns: int | None = None
        """End of the step before, by the log's stamps."""
        self._saving: list[int] = []
        """Stamps of a checkpoint that is being written: the first and the latest."""
        self._micro_batches = 0
        self._pipeline = False
        self._sums: Mapping[bytes, float] = {}
        self._reported = 0
        self._skipped: int | None = None
        self._steps = 0
        """Of the job, by its pipeline engine; here, by another one."""
        self._last: dict[str, float | None] = {}
        self._anew = False
        """Whether an engine was made behind the steps of another one."""

    def events(self) -> Iterator[LogEvent]:
        """The steps and gaps, in order."""
        for line in lines_of(self._file):
            at = line.find(_TIMERS)
            if self._anew and (_is_update(line) or _PIPELINE.search(line)):
                self._anew = False
                yield LoggedRestart(started_at=_started_at(line))
            if at < 0:
                yield from self._other(line)
            elif b"fwd_microstep: " in line:
                self._micro_batches += 1
                self._pipeline = self._pipeline or b"batch_input: " in line
            elif b"fwd: " in line:
                spent = {name: float(ms) for name, ms in _TIMER.findall(line, at)}
                if self._pipeline:
                    self._sums = spent
                else:
                    yield from self._step(line, spent)
        if self._last_ns is not None:
            self._fit.end_ns = self._last_ns

    def _step(self, line: bytes, spent: Mapping[bytes, float]) -> Iterator[LogEvent]:
        """An update of the ordinary engine."""
        timed_ns = {phase: spent.get(name, 0.0) * MS for name, phase in _ENGINE.items()}
        wall_ns, end_ns = round(sum(timed_ns.values())), self._stamp(line)
        if end_ns is not None:
            if self._last_ns is not None:
                between_ns = end_ns - self._last_ns - self._saved_ns()
                wall_ns = max(wall_ns, between_ns)
                yield from self._checkpoint()
            else:
                self._fit.clock = "a step is the time of day from one update to the next"
                only = "not covered: the log has no time before the end of the first step"
                self._fit.reasons[FIRST_STEP_S] = only
            self._last_ns = end_ns
        self._fit.phases.update(_ENGINE.values())
        host_ns, _ = phases_ns(wall_ns, timed_ns)
        facts: dict[str, float | None] = {}
        if b"bwd_allreduce" in spent:
            facts["tail_ns"] = round(spent[b"bwd_allreduce"] * MS)
        if isinstance(size := self._fit.config.get("batch_size"), int):
            facts["samples"] = size
        yield LoggedSteps(
            host_ns=host_ns,
            end_ns=end_ns,
            micro_batches=max(1, self._micro_batches),
            facts=facts,
            last=self._last,
        )
        self._micro_batches, self._last = 0, {}
        self._steps += 1

    def _other(self, line: bytes) -> Iterator[LogEvent]:
        """A line without timers."""
        if self._steps and _ENGINE_BEGINS.search(line):
            self._fit.config.pop("steps_per_print", None)
            self._begin()
            self._anew = True
        if (progress := _PROGRESS.search(line)) is not None:
            self._progress(int(progress[1]), int(progress[2]))
        elif (memory := _MEMORY.search(line)) is not None:
            held, peak = (round(float(size) * (1 << 30)) for size in memory.groups())
            self._last |= {"allocated_bytes": held, "peak_bytes": peak}
        elif (printed := _PIPELINE.search(line)) is not None:
            yield from self._printed(printed)
        elif (setting := _SETTING.search(line)) is not None:
            value: Scalar = int(setting[2])
            self._fit.config[_SETTINGS[setting[1]]] = value
        elif _SAVING.search(line) or (self._saving and _SAVED.search(line)):
            at_ns = self._stamp(line)
            if at_ns is not None:
                self._saving = [*self._saving[:1], at_ns]

    def _progress(self, step: int, skipped: int) -> None:
        """What `steps_per_print` prints: updates so far, and how many of them were skipped."""
        if self._skipped is not None and step > self._reported:
            since = {"attempts": step - self._reported, "overflows": skipped - self._skipped}
            self._last |= since
        self._reported, self._skipped = step, skipped

    def _printed(self, printed: re.Match[bytes]) -> Iterator[LogEvent]:
        """What the pipeline engine prints: a mean, and before it the sums of its timers."""
        step, mean_s, per_s = int(printed[1]), float(printed[3]), float(printed[4])
        number = step - self._steps if 0 < self._steps < step else min(step, self._printed_every())
        timed_ns = {
            phase: self._sums.get(name, 0.0) * MS / number for name, phase in _ENGINE.items()
        }
        if self._sums:
            self._fit.phases.update(_ENGINE.values())
        self._fit.clock = "a step is the mean of `iter time`, its phases those of the first stage"
        host_ns, _ = phases_ns(round(mean_s * SECOND), timed_ns)
        yield LoggedSteps(
            host_ns=host_ns,
            steps=number,
            micro_batches=max(1, self._micro_batches),
            facts={"samples": round(per_s * mean_s)},
            last={**self._last, "loss": float(printed[2])},
        )
        self._steps, self._sums, self._last, self._micro_batches = step, {}, {}, 0

    def _printed_every(self) -> int:
        """Updates that the first line of an attempt is the mean of: it may have been resumed."""
        every = self._fit.config.get("steps_per_print")
        if isinstance(every, int):
            return every
        lines = (printed for line in lines_of(self._file) if (printed := _PIPELINE.search(line)))
        first, *more = (int(printed[1]) for printed in islice(lines, 2))
        return more[0] - first if more and more[0] > first else first

    def _checkpoint(self) -> Iterator[LogEvent]:
        if saved_ns := self._saved_ns():
            yield LoggedGap(gap=Gap.CHECKPOINT, duration_ns=saved_ns, end_ns=self._saving[-1])
        self._saving = []

    def _saved_ns(self) -> int:
        return self._saving[-1] - self._saving[0] if self._saving else 0

    def _stamp(self, line: bytes) -> int | None:
        """Nanoseconds from the first stamp to that of a line; `None` where it has none."""
        at = _moment(line)
        if at is None:
            return None
        if self._began is None:
            self._began = at
        return round((at - self._began).total_seconds() * SECOND)


FORMAT = LogFormat(
    name="deepspeed",
    title="a DeepSpeed log",
    marks="lines `time (ms) | fwd_microstep: …` of wall_clock_breakdown",
    mark=re.compile(
        rb"time \(ms\) \| (?:\w+: [\d.]+ \| )*fwd(?:_microstep)?: "
        rb"|steps: \d+ loss: [^\n]*iter time \(s\): "
    ),
    read=read,
    clock="a step is forward, backward and optimizer as the engine timed them: what is outside of "
    "it, such as loading, is in no step",
    holds={
        Phase.FORWARD.label: "timer `fwd`",
        Phase.BACKWARD.label: "timer `bwd`, reduction included",
        Phase.OPTIMIZER.label: "timer `step`",
        Gap.CHECKPOINT.label: "times of day around `Saving model checkpoint`",
        "tail_ns": "timer `bwd_allreduce`",
        "samples": "setting `train_batch_size`: of the whole job",
        "attempts": "line `step=…, skipped=…`",
        "overflows": "line `step=…, skipped=…`",
        "loss": "loss in a line `steps: …` of the pipeline engine",
        "allocated_bytes": "`MemAllocated` in the line of the throughput timer",
        "peak_bytes": "`MaxMemAllocated` in the line of the throughput timer",
    },
    lacks={
        Phase.DATA_WAIT.label: "the engine times no loading",
        Phase.H2D.label: "the engine times no copies",
        Phase.CALLBACKS.label: "the engine has no callbacks",
        Phase.LOOP.label: "the engine does not time what is outside of it",
    },
)
