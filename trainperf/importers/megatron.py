"""Importer of Megatron-LM's log: lines `iteration … | elapsed time per iteration (ms): …`.

Such a line has the mean over the `--log-interval`, without evaluation and checkpoints; tables of
timers behind it (`--timing-log-level`) have the least and the largest of all ranks.  Recent
releases also log the first iteration and do not start anew behind it: the next line is a mean over
it too.  Read in Megatron-LM's sources of August 2026 (`megatron/training/training.py`,
`megatron/core/timers.py`) and in logs that its users published.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path

import msgspec

from trainperf.core.phases import Gap, Phase
from trainperf.importers.base import (
    MS,
    SECOND,
    LogEvent,
    LogFormat,
    LoggedFit,
    LoggedGap,
    LoggedSteps,
    LossWatch,
    lines_of,
    phases_ns,
)


_ELAPSED = re.compile(rb"elapsed time per iteration \(ms\): *([\d.]+)")
_STAMP = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d+)?\]\s*$")
_ITERATION = b"iteration "
_ANY_LOSS = re.compile(rb"\| [\w ]*loss: *([-+\w.]+)")

_ACROSS_RANKS = b" across ranks (ms):"
_DOTS = b" ."
"""Between the name of a timer or an argument and what it is."""
_TIMERS = re.compile(rb"([a-z][\w/-]*) \.+: \(?(?:\d+\.?\d*, )?(\d+\.?\d*)\)?\s*$", re.MULTILINE)
_ONE_LINE = re.compile(rb"time \(ms\) \|(.*)")
_IN_LINE = re.compile(rb"([a-z][\w/-]*): ([\d.]+)")
_OF_RANKS = re.compile(rb"^\s*(?:\d+: *)?([a-z][\w/-]*):\s*$")
_OF_RANK = re.compile(rb"rank +\d+: ([\d.]+)")
_MEMORY = re.compile(
    rb"memory \(MB\) \| allocated: ([\d.]+) \| max allocated: ([\d.]+)"
    rb" \| reserved: ([\d.]+) \| max reserved: ([\d.]+)"
)
_SETTING = re.compile(rb"\b(world_size|seq_length|micro_batch_size|data_parallel_size) \.+ (\d+)")

_NAMES = {"world_size": "job_ranks", "seq_length": "sequence_length"}
_GAPS = {
    b"evaluate": Gap.VALIDATION,
    b"save-checkpoint": Gap.CHECKPOINT,
    b"save-checkpoint-non-persistent": Gap.CHECKPOINT,
    b"model-and-optimizer-setup": Gap.STARTUP,
    b"train/valid/test-data-iterators-setup": Gap.STARTUP,
}
_DATA_WAIT, _FORWARD = Phase.DATA_WAIT, Phase.FORWARD
_PHASES = (
    (b"batch-generator", _DATA_WAIT),
    (b"forward-compute", _FORWARD),
    (b"backward-compute", Phase.BACKWARD),
    (b"optimizer", Phase.OPTIMIZER),
)
_MEMORY_FACTS = ("allocated_bytes", "peak_bytes", "reserved_bytes", "reserved_peak_bytes")
_ENOUGH = 3
"""Lines that show the interval."""


class _Line(msgspec.Struct):
    """What belongs to one line `iteration …`."""

    iteration: int
    elapsed_ms: float
    text: bytes
    """From the first bar on."""
    stamp: datetime | None
    exact: bool
    """Whether the stamp has fractions of a second, as in recent releases."""
    timers_ms: dict[bytes, float] = {}
    memory: dict[str, float] = {}


def read(files: Sequence[Path]) -> list[LoggedFit]:
    """One fit for each file, as a restart writes a log of its own."""
    fits = []
    for file in files:
        first = list(islice(_lines_in(file), _ENOUGH))
        stamp = first[0].stamp if first else None
        fit = LoggedFit(events=iter(()))
        if stamp is not None:
            fit.started_at = f"{stamp.isoformat()}+00:00"
            fit.notes["clock"] = "times of day are the log's own and taken for UTC"
        fit.events = _Reader(file, fit, first).events()
        fits.append(fit)
    return fits


def _lines_in(file: Path) -> Iterator[_Line]:
    return filter(None, map(_line, lines_of(file)))


def _line(line: bytes) -> _Line | None:
    at = line.find(_ITERATION)
    bar = line.find(b"|", at)
    elapsed = _ELAPSED.search(line)
    number = line[at + len(_ITERATION) : bar].partition(b"/")[0].strip()
    if elapsed is None or at < 0 or not number.isdigit():
        return None
    stamp = _STAMP.search(line, 0, at)
    return _Line(
        iteration=int(number),
        elapsed_ms=float(elapsed[1]),
        text=line[bar:],
        stamp=None if stamp is None else _moment(stamp[1], stamp[2]),
        exact=stamp is not None and stamp[2] is not None,
    )


def _moment(seconds: bytes, fraction: bytes | None) -> datetime:
    moment = seconds.decode()
    return datetime.fromisoformat(f"{moment}{fraction.decode():0<7.7}" if fraction else moment)


class _Reader:
    """One log while it is read."""

    def __init__(self, file: Path, fit: LoggedFit, first: Sequence[_Line]) -> None:
        self._file, self._fit = file, fit
        self._losses = LossWatch(fit)
        self._interval = _interval(first)
        early = bool(first) and self._interval > 1 and first[0].iteration % self._interval != 0
        self._once_more = early or (bool(first) and self._interval == 1 and first[0].exact)
        """Whether the second line is a mean over the first iteration too."""
        self._pending: _Line | None = None
        self._before: _Line | None = None
        self._alone: dict[bytes, float] = {}
        """Milliseconds of the first iteration, while the next line's are not its own."""
        self._skipped = 0
        """Updates skipped in the first iteration, while the next line counts it too."""
        self._samples: int | None = None
        self._startup_ns = 0
        self._began: datetime | None = None
        self._cut = self._lines = 0
        self._in_table = b""

    def events(self) -> Iterator[LogEvent]:
        """The steps and gaps, in order."""
        table: list[bytes] = []
        for line in lines_of(self._file):
            if _DOTS in line and b"|" not in line:
                table.append(line)
                continue
            if table:
                yield from self._around(self._table(b"".join(table)))
                table.clear()
            if b"elapsed time per iteration" in line and (logged := _line(line)) is not None:
                yield from self._settled()
                self._pending = logged
            elif (b": " in line or b":\n" in line) and _ACROSS_RANKS not in line:
                yield from self._around(self._other(line))
        yield from self._around(self._table(b"".join(table)))
        yield from self._settled()
        if self._cut:
            self._fit.notes["timers"] = (
                f"in {self._cut:,} of {self._lines:,} lines the phases of the slowest ranks add up "
                "to more than the step: cut in proportion"
            )

    def _around(self, gaps: Sequence[LoggedGap]) -> Iterator[LogEvent]:
        """Pauses, each behind the steps before it."""
        for gap in gaps:
            yield from self._settled()
            yield gap

    def _table(self, text: bytes) -> Sequence[LoggedGap]:
        """Lines `name .....: (1.00, 2.00)` of timers, or arguments, `name ..... 2`."""
        gaps = self._timers(_TIMERS.findall(text))
        if self._before is None:
            for line in text.splitlines():
                self._state(line)
        return gaps

    def _other(self, line: bytes) -> Sequence[LoggedGap]:
        """Timers in other forms, or a line about memory."""
        if (in_line := _ONE_LINE.search(line)) is not None:
            return self._timers(_IN_LINE.findall(in_line[1]))
        if (of_rank := _OF_RANK.search(line)) is not None and self._in_table:
            return self._timers([(self._in_table, of_rank[1])])
        if (named := _OF_RANKS.search(line)) is not None:
            self._in_table = named[1]
        else:
            self._state(line)
        return ()

    def _state(self, line: bytes) -> None:
        """A line about memory, or an argument."""
        if (memory := _MEMORY.search(line)) is not None and self._pending is not None:
            held = self._pending.memory
            for name, mb in zip(_MEMORY_FACTS, memory.groups(), strict=True):
                held[name] = max(held.get(name, 0.0), round(float(mb) * (1 << 20)))
        elif (setting := _SETTING.search(line)) is not None:
            given = setting[1].decode()
            self._fit.config[_NAMES.get(given, given)] = int(setting[2])

    def _timers(self, timers: Sequence[tuple[bytes, bytes]]) -> Sequence[LoggedGap]:
        """Timers of the slowest rank: of the line before them, or pauses, which are returned."""
        gaps: list[LoggedGap] = []
        of_line = {} if self._pending is None else self._pending.timers_ms
        for name, number in timers:
            ms = float(number)
            gap = _GAPS.get(name)
            if gap is None:
                of_line[name] = max(of_line[name], ms) if name in of_line else ms
            elif gap is not Gap.STARTUP:
                gaps.append(LoggedGap(gap=gap, duration_ns=round(ms * MS)))
            elif self._before is None and self._pending is None:
                self._startup_ns += round(ms * MS)
        return gaps

    def _settled(self) -> Sequence[LogEvent]:
        """The line that waited for its tables."""
        line, self._pending = self._pending, None
        if line is None:
            return ()
        number = self._number(line)
        total_ms, timers_ms = self._own(line, number)
        host_ns, cut = phases_ns(
            round(max(0.0, total_ms) * MS / number), self._phases(timers_ms, number)
        )
        self._cut, self._lines = self._cut + cut, self._lines + 1
        before: tuple[LogEvent, ...] = ()
        if self._before is None:
            if line.stamp is not None:
                self._began = line.stamp
            self._first_ns = number * sum(host_ns) + self._startup_ns
            if self._startup_ns:
                before = (LoggedGap(gap=Gap.STARTUP, duration_ns=self._startup_ns),)
        steps = LoggedSteps(
            host_ns=host_ns,
            steps=number,
            end_ns=self._end_ns(line),
            facts=self._facts(line, timers_ms.get(b"all-grads-sync"), number),
            last=self._of_last(line, number),
        )
        self._before = line
        return (*before, steps)

    def _number(self, line: _Line) -> int:
        before = self._before
        if before is None:
            return 1 if self._once_more else max(1, min(self._interval, line.iteration))
        # After a restart in the same log the count goes back.
        return max(1, line.iteration - before.iteration) if line.iteration > before.iteration else 1

    def _own(self, line: _Line, number: int) -> tuple[float, dict[bytes, float]]:
        """Milliseconds of the line's own iterations, and those of its timers."""
        # Timers are divided by the interval, however many iterations they are of.
        timers_ms = line.timers_ms
        if self._interval != 1:
            timers_ms = {name: ms * self._interval for name, ms in timers_ms.items()}
        if self._before is None:
            if self._once_more:
                self._alone = {**timers_ms, b"": line.elapsed_ms}
            return line.elapsed_ms * number, timers_ms
        alone, self._alone = self._alone, {}
        if not alone:
            return line.elapsed_ms * number, timers_ms
        total_ms = line.elapsed_ms * (number + 1) - alone[b""]
        own = {name: max(0.0, ms - alone.get(name, 0.0)) for name, ms in timers_ms.items()}
        return total_ms, own

    def _phases(self, timers_ms: Mapping[bytes, float], number: int) -> dict[Phase, float]:
        """Nanoseconds of a step."""
        timed = {
            phase: timers_ms[name] * MS / number for name, phase in _PHASES if name in timers_ms
        }
        if _FORWARD in timed:
            # The generator runs inside of it.
            timed[_FORWARD] = max(0.0, timed[_FORWARD] - timed.get(_DATA_WAIT, 0.0))
        self._fit.phases.update(timed)
        return timed

    def _facts(self, line: _Line, sync_ms: float | None, number: int) -> dict[str, float | None]:
        """Of each step of a line; *sync_ms* is what all of them waited for gradients."""
        consumed = _int(_value(line.text, b" consumed samples:"))
        facts: dict[str, float | None] = {}
        if sync_ms is not None:
            facts["tail_ns"] = round(sync_ms * MS / number)
        if consumed is not None:
            before, self._samples = self._samples, consumed
            since = consumed - before if before is not None else None
            if since is None and self._before is None and number == line.iteration:
                since = consumed
            if since is not None and since >= 0:
                facts["samples"] = since / number
                length = self._fit.config.get("sequence_length")
                if isinstance(length, int):
                    facts["tokens_padded"] = since * length / number
        return facts

    def _of_last(self, line: _Line, number: int) -> dict[str, float | None]:
        last: dict[str, float | None] = dict(line.memory)
        loss = _value(line.text, b" lm loss:")
        if not loss and (named := _ANY_LOSS.search(line.text)) is not None:
            loss = named[1]
        if loss:
            last["loss"] = self._losses.take(_float(loss), line.iteration)
        scale = _value(line.text, b" loss scale:")
        if scale and _float(scale) != 1.0:
            last["loss_scale"] = _float(scale)
            skipped = _int(_value(line.text, b" number of skipped iterations:"))
            if skipped is not None:
                last |= {"attempts": number, "overflows": max(0, skipped - self._skipped)}
                self._skipped = skipped if self._before is None and self._once_more else 0
        return last

    def _end_ns(self, line: _Line) -> int | None:
        if self._began is None or line.stamp is None:
            return None
        since_s = (line.stamp - self._began).total_seconds()
        # Stamps of whole seconds are rounded down, either of them.
        return self._first_ns + round((since_s if line.exact else since_s - 1) * SECOND)


def _interval(first: Sequence[_Line]) -> int:
    """Iterations between two lines; the first distance may be a shorter one."""
    numbers = [line.iteration for line in first]
    if len(numbers) == _ENOUGH and numbers[2] > numbers[1]:
        return numbers[2] - numbers[1]
    if len(numbers) == 2 and numbers[1] > numbers[0]:
        return numbers[1] if numbers[0] == 1 else numbers[1] - numbers[0]
    return 1


def _value(text: bytes, name: bytes) -> bytes:
    """What stands behind a name of a line, up to the next bar; empty without it."""
    begin = text.find(name)
    if begin < 0:
        return b""
    begin += len(name)
    end = text.find(b"|", begin)
    return (text[begin:end] if end >= 0 else text[begin:]).strip()


def _int(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None


def _float(number: bytes) -> float:
    try:
        return float(number)
    except ValueError:
        return float("nan")


FORMAT = LogFormat(
    name="megatron",
    title="a Megatron-LM log",
    marks="lines `iteration … | elapsed time per iteration (ms): …`",
    mark=re.compile(rb"iteration\s+\d+\s*/\s*\d+ ?\|[^\n]*elapsed time per iteration \(ms\):"),
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
