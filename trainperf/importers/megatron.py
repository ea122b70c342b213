"""Importer of Megatron-LM's log: lines `iteration … | elapsed time per iteration (ms): …`.

Such a line has the mean over the `--log-interval`, without evaluation and checkpoints; tables of
timers behind it (`--timing-log-level`) have the least and the largest of all ranks.  Recent
releases also log the first iteration and do not start anew behind it: the next line is a mean over
it too.  Read in Megatron-LM's sources of August 2026 (`megatron/training/training.py`,
`megatron/core/timers.py`) and in logs that its users published.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from trainperf.core.phases import Gap, Phase
from trainperf.importers.base import (
    MS,
    SECOND,
    LogEvent,
    LogFormat,
    LoggedFit,
    LoggedGap,
    LoggedStart,
    LoggedSteps,
    day_ns,
    lines_of,
)


_LINE = re.compile(
    rb"(?:\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d+)?\]\s*)?iteration +(\d+) */[^|]*\|"
    rb".*?elapsed time per iteration \((m?)s\): *(\d+\.?\d*)"
)
_FIELD = re.compile(
    rb"\| (consumed samples|[\w ]*loss(?: scale)?|number of skipped iterations)"
    rb": *([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)\b)"
)
"""Of a line of an iteration."""
_ROW = re.compile(rb"([a-z][\w/-]*(?: [a-z]+)?)(?: \.+:?|:) \(?(?:[\d.]+, )?(\d+\.?\d*)")
"""Of a table of timers, of sizes, or of arguments."""

_PHASES = {
    b"batch-generator": Phase.DATA_WAIT,
    b"forward-compute": Phase.FORWARD,
    b"backward-compute": Phase.BACKWARD,
    b"optimizer": Phase.OPTIMIZER,
}
_GAPS = {
    b"evaluate": Gap.VALIDATION,
    b"save-checkpoint": Gap.CHECKPOINT,
    b"save-checkpoint-non-persistent": Gap.CHECKPOINT,
    b"model-and-optimizer-setup": Gap.STARTUP,
    b"train/valid/test-data-iterators-setup": Gap.STARTUP,
}
"""Timers of what is no part of a step."""
_SYNC = b"all-grads-sync"
"""Timer of what all ranks wait for gradients."""
_SAMPLES = b"consumed samples"
_SKIPPED = b"number of skipped iterations"
_MEMORY = {
    b"allocated": "allocated_bytes",
    b"max allocated": "peak_bytes",
    b"reserved": "reserved_bytes",
    b"max reserved": "reserved_peak_bytes",
}
_SETTINGS = {
    b"world_size": "job_ranks",
    b"seq_length": "sequence_length",
    b"micro_batch_size": "micro_batch_size",
    b"data_parallel_size": "data_parallel_size",
}


@dataclass(slots=True)
class _Line:
    """A line of an iteration, and what is printed before the first one or behind it."""

    iteration: int = 0
    elapsed_ms: float = 0.0
    day_ns: int | None = None
    """As in `LoggedStart`."""
    exact: bool = False
    """Whether the time of day has fractions of a second, as in recent releases."""
    named: dict[bytes, float] = field(default_factory=dict)
    """Numbers of the line; milliseconds of timers and MiB of memory, the largest of all ranks."""
    settings: dict[str, int] = field(default_factory=dict)
    """Arguments before it: they are printed when a job begins."""
    gaps: list[LoggedGap] = field(default_factory=list)
    """Before the first iteration the startup, behind others their pauses."""

    def begin(self, match: re.Match[bytes]) -> None:
        """Read the line itself."""
        date, fraction, iteration, milli, elapsed = match.groups()
        # Megatron-DeepSpeed's forks print seconds.
        self.iteration, self.elapsed_ms = int(iteration), float(elapsed) * (1 if milli else 1000)
        self.named = {
            name: float(number) for name, number in _FIELD.findall(match.string, match.end(3))
        }
        if date:
            self.exact, self.day_ns = fraction is not None, day_ns(date + (fraction or b""))

    def take(self, name: bytes, number: float) -> None:
        """Read a row of a table."""
        if name in _SETTINGS:
            self.settings[_SETTINGS[name]] = int(number)
        elif name in _GAPS:
            self.gaps.append(LoggedGap(gap=_GAPS[name], duration_ns=round(number * MS)))
        else:
            self.named[name] = max(number, self.named.get(name, 0.0))


def _lines_in(file: Path) -> Iterator[_Line]:
    """The iterations of a log."""
    line = _Line()
    for text in lines_of(file):
        if b" per iteration (" in text and (match := _LINE.search(text)) is not None:
            if line.iteration:
                yield line
                line = _Line()
            line.begin(match)
        elif b" ..." in text or b") | " in text:
            for name, number in _ROW.findall(text):
                if line.iteration and name in _SETTINGS:
                    yield line
                    line = _Line()
                line.take(name, float(number))
    if line.iteration:
        yield line


def read(file: Path, fit: LoggedFit) -> Iterator[LogEvent]:
    """The steps and gaps, in order."""
    lines = _lines_in(file)
    first = list(islice(lines, 3))
    every = _interval_of([line.iteration for line in first])
    before, alone = _Line(), _Line()
    for line in chain(first, lines):
        fit.config |= line.settings
        number = line.iteration - before.iteration
        begins = bool(line.settings) or number <= 0 or not before.iteration
        if begins:
            before, alone, began = _Line(), _Line(), line
            # Whether the second line is a mean over the first iteration too.
            once_more = line.exact if every == 1 else line.iteration % every != 0
            number = 1 if once_more else max(1, min(every, line.iteration))
            startup_ns = sum(gap.duration_ns for gap in line.gaps if gap.gap is Gap.STARTUP)
            yield LoggedStart(day_ns=line.day_ns)
            if startup_ns:
                yield LoggedGap(gap=Gap.STARTUP, duration_ns=startup_ns)
        steps = _steps(line, alone, number, every)
        steps.facts |= _samples(line, before, number, fit.config.get("sequence_length"))
        if begins:
            first_ns = number * steps.wall_ns + startup_ns
        if began.day_ns is not None and line.day_ns is not None:
            fit.notes["clock"] = "times of day are the log's own and taken for UTC"
            # Stamps of whole seconds are rounded down, either of them.
            late_ns = 0 if line.exact else SECOND
            steps.end_ns = first_ns + line.day_ns - began.day_ns - late_ns
        yield steps
        yield from (gap for gap in line.gaps if gap.gap is not Gap.STARTUP)
        before, alone = line, line if begins and once_more else _Line()


def _steps(line: _Line, alone: _Line, number: int, every: int) -> LoggedSteps:
    """The iterations of a line, which is a mean over the one that was logged *alone* too."""
    total_ms = line.elapsed_ms * (number + bool(alone.iteration)) - alone.elapsed_ms
    # Timers are divided by the interval, however many iterations they are of.
    timers_ns = {
        name: max(0.0, (line.named[name] - alone.named.get(name, 0.0)) * every) * MS / number
        for name in (*_PHASES, _SYNC)
        if name in line.named
    }
    phases_ns = {phase: timers_ns[name] for name, phase in _PHASES.items() if name in timers_ns}
    if Phase.FORWARD in phases_ns:
        # The generator runs inside of it.
        inside_ns = phases_ns.get(Phase.DATA_WAIT, 0.0)
        phases_ns[Phase.FORWARD] = max(0.0, phases_ns[Phase.FORWARD] - inside_ns)
    losses = (name for name in (b"lm loss", *line.named) if name.endswith(b"loss"))
    loss = next((line.named[name] for name in losses if name in line.named), None)
    last: dict[str, float | None] = {} if loss is None else {"loss": loss}
    scale, skipped = line.named.get(b"loss scale", 1.0), line.named.get(_SKIPPED, 0.0)
    if scale != 1.0:
        overflows = max(0, int(skipped - alone.named.get(_SKIPPED, 0.0)))
        last |= {"loss_scale": scale, "attempts": number, "overflows": overflows}
    last |= {
        fact: round(line.named[name] * (1 << 20))
        for name, fact in _MEMORY.items()
        if name in line.named
    }
    return LoggedSteps(
        wall_ns=round(max(0.0, total_ms) * MS / number),
        phases_ns=phases_ns,
        steps=number,
        facts={"tail_ns": round(timers_ns[_SYNC])} if _SYNC in timers_ns else {},
        last=last,
    )


def _samples(line: _Line, before: _Line, number: int, length: object) -> dict[str, float | None]:
    """Samples and tokens of each step of a line; of the first one where it has all until then."""
    none = 0.0 if number == line.iteration else math.nan
    each = (line.named.get(_SAMPLES, math.nan) - before.named.get(_SAMPLES, none)) / number
    tokens = each * length if isinstance(length, int) else math.nan
    return {n: v for n, v in {"samples": each, "tokens_padded": tokens}.items() if v >= 0}


def _interval_of(numbers: Sequence[int]) -> int:
    """Iterations between two lines; the first distance may be a shorter one."""
    if len(numbers) == 2 and numbers[0] == 1:
        return numbers[1]
    return max(1, numbers[-1] - numbers[-2]) if len(numbers) > 1 else 1


FORMAT = LogFormat(
    name="megatron",
    title="a Megatron-LM log",
    marks="lines `iteration … | elapsed time per iteration (ms): …`, or (s)",
    mark=re.compile(rb"iteration\s+\d+\s*/\s*\d+ ?\|[^\n]*elapsed time per iteration \(m?s\):"),
    read=read,
    device="cuda",
    clock="a step is the mean of its log interval, without evaluation and checkpoints; timers are "
    "those of the slowest rank, each synchronised with its device",
    holds={
        Phase.DATA_WAIT.label: "timer `batch-generator` (--timing-log-level 2)",
        Phase.FORWARD.label: "timer `forward-compute` (--timing-log-level 2)",
        Phase.BACKWARD.label: "timer `backward-compute` (--timing-log-level 2)",
        Phase.OPTIMIZER.label: "timer `optimizer` (--timing-log-level 1)",
        Gap.STARTUP.label: "timers of the setup",
        Gap.VALIDATION.label: "timer `evaluate`",
        Gap.CHECKPOINT.label: "timer `save-checkpoint`",
        "tail_ns": "timer `all-grads-sync` (--timing-log-level 1)",
        "samples": "`consumed samples`: of the whole job",
        "tokens_padded": "argument `seq_length`, times the samples",
        "attempts": "`number of skipped iterations` under a loss scale",
        "overflows": "`number of skipped iterations` under a loss scale",
        "loss_scale": "`loss scale` other than 1",
        "loss": "`lm loss`: the mean of the interval",
        "allocated_bytes": "line `memory (MB)`",
        "peak_bytes": "line `memory (MB)`",
        "reserved_bytes": "line `memory (MB)`",
        "reserved_peak_bytes": "line `memory (MB)`",
    },
    lacks={
        Phase.H2D.label: "no timer is around the copies",
        Phase.CALLBACKS.label: "Megatron-LM has no callbacks",
        Phase.LOOP.label: "no timer is around logging",
        "tokens_effective": "the log counts samples, not the tokens that the loss counts",
    },
)
