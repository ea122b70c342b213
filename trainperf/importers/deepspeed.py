"""Importer of DeepSpeed's `wall_clock_breakdown`: lines `time (ms) | fwd: … | bwd: … | step: …`.

The engine prints one such line per micro-batch and one per update, on rank 0.  Releases until 2024
write the time of day before it, later ones do not.  Read in DeepSpeed's sources of August 2026
(`deepspeed/utils/timer.py`, `runtime/engine.py`) and in logs that its users published.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainperf.core.errors import LogError
from trainperf.core.phases import Gap, Phase
from trainperf.core.readings import FIRST_STEP_S
from trainperf.core.steps.records import Scalar
from trainperf.importers.base import (
    MS,
    LogEvent,
    LogFormat,
    LoggedFit,
    LoggedGap,
    LoggedStart,
    LoggedSteps,
    day_ns,
    lines_of,
)


_TIMERS = b"time (ms) | "
_TIMER = re.compile(rb"(\w+): ([\d.]+)")
_PHASES = {b"fwd": Phase.FORWARD, b"bwd": Phase.BACKWARD, b"step": Phase.OPTIMIZER}
_STAMP = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]")
_PROGRESS = re.compile(rb"\bstep=(\d+), skipped=(\d+), lr=")
_MEMORY = re.compile(rb"MemAllocated=([\d.]+)GB, MaxMemAllocated=([\d.]+)GB")
_SETTING = re.compile(rb"\b(\w+) \.+ (\d+)\s*$")
_SETTINGS = {
    b"train_batch_size": "batch_size",
    b"gradient_accumulation_steps": "accumulate_grad_batches",
    b"world_size": "job_ranks",
    b"zero_optimization_stage": "zero_stage",
    b"steps_per_print": "steps_per_print",
}
_ENGINE_BEGINS = re.compile(rb"DeepSpeed info: version=|\btrain_batch_size \.+ \d")
"""Printed when an engine is made: behind updates, the job began anew in the same log."""
_SAVING = re.compile(
    rb"is about to be saved|Saving model checkpoint"
    rb"|is ready now|\[Torch\] Saved|zero checkpoint saved"
)


@dataclass(slots=True)
class _Update:
    """What is printed before an update."""

    begins: bool = False
    """Whether an engine is made before it."""
    micro_batches: int = 0
    saving: list[int] = field(default_factory=list)
    """Times of day at which a checkpoint was being written."""
    counted: tuple[int, int] = (0, 0)
    """Updates so far, and how many of them were skipped."""
    last: dict[str, float | None] = field(default_factory=dict)
    """Facts of it alone."""
    settings: dict[str, Scalar] = field(default_factory=dict)
    """Of its engine, as that was made."""

    def take(self, line: bytes) -> None:
        """Read a line before its own."""
        if _TIMERS in line:
            self.micro_batches += b"fwd_microstep: " in line
        elif (progress := _PROGRESS.search(line)) is not None:
            step, skipped = map(int, progress.groups())
            if step > self.counted[0] > 0:
                self.last |= {
                    "attempts": step - self.counted[0],
                    "overflows": skipped - self.counted[1],
                }
            self.counted = step, skipped
        elif (memory := _MEMORY.search(line)) is not None:
            held, peak = (round(float(size) * (1 << 30)) for size in memory.groups())
            self.last |= {"allocated_bytes": held, "peak_bytes": peak}
        elif (setting := _SETTING.search(line)) is not None and setting[1] in _SETTINGS:
            self.settings[_SETTINGS[setting[1]]] = int(setting[2])
        elif _SAVING.search(line) and (at_ns := _day_ns(line)) is not None:
            self.saving.append(at_ns)


def _day_ns(line: bytes) -> int | None:
    """Time of day of a line; `None` where it has none."""
    stamp = _STAMP.search(line)
    return stamp and day_ns(stamp[1].replace(b",", b"."))


def read(file: Path, fit: LoggedFit) -> Iterator[LogEvent]:
    """The steps and gaps, in order."""
    update = _Update(begins=True)
    began_ns: int | None = None
    before_ns: int | None = None
    for line in lines_of(file):
        if b"batch_input: " in line:
            raise LogError(
                f"{file}: of DeepSpeed's pipeline engine, whose timers are sums over several "
                "updates: it is no longer read"
            )
        if _ENGINE_BEGINS.search(line):
            update = _Update(begins=True)
        if _TIMERS not in line or b"fwd: " not in line:
            update.take(line)
        else:
            at_ns = _day_ns(line)
            if update.begins:
                began_ns, before_ns = at_ns, None
                yield LoggedStart(day_ns=at_ns)
            if at_ns is not None and began_ns is not None:
                fit.end_ns = at_ns - began_ns
                fit.notes["clock"] = "times of day are the log's own and taken for UTC"
                fit.clock = "a step is the time of day from one update to the next"
                fit.reasons[FIRST_STEP_S] = (
                    "not covered: the log has no time before the end of the first step"
                )
            fit.config |= update.settings
            since_ns = None if at_ns is None or before_ns is None else at_ns - before_ns
            yield from _logged(update, line, since_ns, fit)
            update, before_ns = _Update(counted=update.counted), at_ns


def _logged(
    update: _Update, timers: bytes, since_ns: int | None, fit: LoggedFit
) -> Iterator[LogEvent]:
    """The step of an update, and the checkpoint that was written before it.

    Args:
        update: What is printed before it.
        timers: Its line.
        since_ns: Time of day since the update before; `None` where the log does not tell.
        fit: What the log says of all of it.
    """
    spent_ns = {name: float(ms) * MS for name, ms in _TIMER.findall(timers, timers.find(_TIMERS))}
    phases_ns = {phase: spent_ns.get(name, 0.0) for name, phase in _PHASES.items()}
    wall_ns = round(sum(phases_ns.values()))
    facts = {"tail_ns": spent_ns.get(b"bwd_allreduce"), "samples": fit.config.get("batch_size")}
    if since_ns is not None:
        saved_ns = update.saving[-1] - update.saving[0] if update.saving else 0
        wall_ns = max(wall_ns, since_ns - saved_ns)
        if saved_ns:
            yield LoggedGap(gap=Gap.CHECKPOINT, duration_ns=saved_ns)
    yield LoggedSteps(
        wall_ns=wall_ns,
        phases_ns=phases_ns,
        end_ns=fit.end_ns,
        micro_batches=max(1, update.micro_batches),
        facts={name: round(n) for name, n in facts.items() if isinstance(n, int | float)},
        last=update.last,
    )


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
