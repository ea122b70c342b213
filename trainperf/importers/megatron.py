"""Importer of Megatron-LM's log: lines `iteration … | elapsed time per iteration (ms): …`.

Such a line has the mean over the `--log-interval`, without evaluation and checkpoints; tables of
timers behind it (`--timing-log-level`) have the least and the largest of all ranks.  Recent
releases also log the first iteration and do not start anew behind it: the next line is a mean over
it too.  Read in Megatron-LM's sources of August 2026 (`megatron/training/training.py`,
`megatron/core/timers.py`) and in logs that its users published.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path

import numpy as np

from trainperf.core.phases import Gap, Phase
from trainperf.importers.base import (
    MS,
    SECOND,
    LogEvent,
    LogFormat,
    LoggedColumns,
    LoggedFit,
    LoggedGap,
    LoggedRestart,
    LoggedSteps,
    LossWatch,
    lines_of,
    phases_ns,
)
from trainperf.importers.megatron_alike import Iterations, MegatronStretch, stretches
from trainperf.importers.megatron_lines import (
    ENOUGH,
    GAPS,
    MARK,
    PHASES,
    SAMPLES,
    SCALE,
    SKIPPED,
    SYNC,
    TIMERS,
    MegatronLine,
    in_table,
    interval_of,
    is_read,
    line_of,
    loss_in,
    value_of,
)


_ONE_LINE = re.compile(rb"time \(ms\) \|(.*)")
_IN_LINE = re.compile(rb"([a-z][\w/-]*): ([\d.]+)")
_OF_RANKS = re.compile(rb"^\s*(?:\d+: *)?([a-z][\w/-]*):\s*$")
_OF_RANK = re.compile(rb"rank +\d+: ([\d.]+)")
_MEMORY = re.compile(
    rb"memory \(MB\) \| allocated: ([\d.]+) \| max allocated: ([\d.]+)"
    rb" \| reserved: ([\d.]+) \| max reserved: ([\d.]+)"
)
_SETTING = re.compile(rb"\b(world_size|seq_length|micro_batch_size|data_parallel_size) \.+ (\d+)")
_ARGUMENT = re.compile(rb"\b(?:world_size|micro_batch_size) \.+ \d+")

_NAMES = {"world_size": "job_ranks", "seq_length": "sequence_length"}
_DATA_WAIT, _FORWARD = Phase.DATA_WAIT, Phase.FORWARD
_MEMORY_FACTS = ("allocated_bytes", "peak_bytes", "reserved_bytes", "reserved_peak_bytes")


def read(files: Sequence[Path]) -> list[LoggedFit]:
    """One fit for each file, as a restart writes a log of its own."""
    fits = []
    for file in files:
        first = list(islice(_lines_in(file), ENOUGH))
        stamp = first[0].stamp if first else None
        fit = LoggedFit(events=iter(()))
        fit.started_at = _started_at(stamp)
        if stamp is not None:
            fit.notes["clock"] = "times of day are the log's own and taken for UTC"
        fit.events = _Reader(file, fit, first).events()
        fits.append(fit)
    return fits


def _lines_in(file: Path) -> Iterator[MegatronLine]:
    return filter(None, map(line_of, lines_of(file)))


def _started_at(stamp: datetime | None) -> str:
    return "" if stamp is None else f"{stamp.isoformat()}+00:00"


class _Reader:
    """One log while it is read."""

    def __init__(self, file: Path, fit: LoggedFit, first: Sequence[MegatronLine]) -> None:
        self._file, self._fit = file, fit
        self._losses = LossWatch(fit)
        self._interval = interval_of(first)
        early = bool(first) and self._interval > 1 and first[0].iteration % self._interval != 0
        self._once_more = early or (bool(first) and self._interval == 1 and first[0].exact)
        """Whether the second line is a mean over the first iteration too."""
        self._cut = self._lines = 0
        self._anew = False
        """Whether the job began anew behind iterations, and none of it was read yet."""
        self._begin()

    def _begin(self) -> None:
        """An attempt, whose times and counts are its own."""
        self._pending: MegatronLine | None = None
        self._before: MegatronLine | None = None
        self._alone: dict[bytes, float] = {}
        """Milliseconds of the first iteration, while the next line's are not its own."""
        self._skipped = 0
        """Updates skipped in the first iteration, while the next line counts it too."""
        self._samples: int | None = None
        self._startup_ns = 0
        self._began: datetime | None = None
        self._in_table = b""

    def events(self) -> Iterator[LogEvent]:
        """The steps and gaps, in order."""
        if self._interval == 1:
            for stretch in stretches(self._file):
                yield from self._read_alike(stretch)
        else:
            yield from self._read(lines_of(self._file))
        yield from self._settled()
        if self._cut:
            self._fit.notes["timers"] = (
                f"in {self._cut:,} of {self._lines:,} lines the phases of the slowest ranks add up "
                "to more than the step: cut in proportion"
            )

    def _read(self, lines: Iterable[bytes]) -> Iterator[LogEvent]:
        """Lines one by one; the last iteration of them is not settled yet."""
        table: list[bytes] = []
        for line in lines:
            if in_table(line):
                table.append(line)
                continue
            if table:
                yield from self._tabled(b"".join(table))
                table.clear()
            if MARK in line and (logged := line_of(line)) is not None:
                yield from self._settled()
                if self._before is not None and logged.iteration <= self._before.iteration:
                    self._begin()
                    self._anew = True
                if self._anew:
                    self._anew = False
                    yield LoggedRestart(started_at=_started_at(logged.stamp))
                self._pending = logged
            elif is_read(line):
                yield from self._around(self._other(line))
        yield from self._tabled(b"".join(table))

    def _read_alike(self, stretch: MegatronStretch) -> Iterator[LogEvent]:
        """Iterations at once where each goes on from the one before; the others singly."""
        if stretch.form is None:
            yield from self._read(stretch.lines(0, -1))
            return
        columns = stretch.iterations()
        for begin, end, alike in columns.runs():
            place = begin
            if alike:
                yield from self._settled()
                while place < end and (self._alone or self._skipped):
                    yield from self._read(stretch.lines(place, place + 1))
                    yield from self._settled()
                    place += 1
            if alike and place < end:
                yield self._at_once(columns.part(place - 1, end), exact=stretch.form.exact)
            elif not alike:
                yield from self._read(stretch.lines(begin, end))

    def _at_once(self, columns: Iterations, *, exact: bool) -> LoggedColumns:
        """Iterations behind the first of *columns*, which was read before."""
        host_ns, timed = columns.phases_ns()
        number = len(host_ns) - 1
        self._fit.phases.update(timed)
        self._lines += number
        last = int(columns.iteration[-1])
        self._before = MegatronLine(
            iteration=last, elapsed_ms=0.0, text=b"", stamp=None, exact=exact
        )
        facts = columns.facts(self._fit.config.get("sequence_length"))
        if columns.samples is not None:
            self._samples = int(columns.samples[-1])
        if columns.loss is not None:
            self._losses.take(float(columns.loss[-1]), last)
        return LoggedColumns(
            host_ns=host_ns[1:],
            end_ns=self._ends_ns(columns, exact=exact),
            tags=[0] * number,
            micro_batches=[1] * number,
            facts=facts,
        )

    def _ends_ns(self, columns: Iterations, *, exact: bool) -> list[int] | None:
        if self._began is None or columns.stamps is None:
            return None
        since_us = (columns.stamps[1:] - np.datetime64(self._began, "us")).astype(np.int64)
        # As for one line.
        since_s = since_us / 1e6 - (0.0 if exact else 1.0)
        ends_ns: list[int] = (self._first_ns + np.rint(since_s * SECOND).astype(np.int64)).tolist()
        return ends_ns

    def _around(self, gaps: Sequence[LoggedGap]) -> Iterator[LogEvent]:
        """Pauses, each behind the steps before it."""
        for gap in gaps:
            yield from self._settled()
            yield gap

    def _tabled(self, text: bytes) -> Iterator[LogEvent]:
        """Lines `name .....: (1.00, 2.00)` of timers, or arguments, `name ..... 2`."""
        begun = self._before is not None or self._pending is not None
        if begun and _ARGUMENT.search(text) is not None:
            # Arguments are printed when a job begins.
            yield from self._settled()
            self._begin()
            self._anew = True
        gaps = self._timers(TIMERS.findall(text))
        if self._before is None:
            for line in text.splitlines():
                self._state(line)
        yield from self._around(gaps)

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
            gap = GAPS.get(name)
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
            facts=self._facts(line, timers_ms.get(SYNC), number),
            last=self._of_last(line, number),
        )
        self._before = line
        return (*before, steps)

    def _number(self, line: MegatronLine) -> int:
        before = self._before
        if before is None:
            return 1 if self._once_more else max(1, min(self._interval, line.iteration))
        return line.iteration - before.iteration

    def _own(self, line: MegatronLine, number: int) -> tuple[float, dict[bytes, float]]:
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
            phase: timers_ms[name] * MS / number for name, phase in PHASES if name in timers_ms
        }
        if _FORWARD in timed:
            # The generator runs inside of it.
            timed[_FORWARD] = max(0.0, timed[_FORWARD] - timed.get(_DATA_WAIT, 0.0))
        self._fit.phases.update(timed)
        return timed

    def _facts(
        self, line: MegatronLine, sync_ms: float | None, number: int
    ) -> dict[str, float | None]:
        """Of each step of a line; *sync_ms* is what all of them waited for gradients."""
        consumed = _int(value_of(line.text, SAMPLES))
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

    def _of_last(self, line: MegatronLine, number: int) -> dict[str, float | None]:
        last: dict[str, float | None] = dict(line.memory)
        if loss := loss_in(line.text):
            last["loss"] = self._losses.take(_float(loss), line.iteration)
        scale = value_of(line.text, SCALE)
        if scale and _float(scale) != 1.0:
            last["loss_scale"] = _float(scale)
            skipped = _int(value_of(line.text, SKIPPED))
            if skipped is not None:
                last |= {"attempts": number, "overflows": max(0, skipped - self._skipped)}
                self._skipped = skipped if self._before is None and self._once_more else 0
        return last

    def _end_ns(self, line: MegatronLine) -> int | None:
        if self._began is None or line.stamp is None:
            return None
        since_s = (line.stamp - self._began).total_seconds()
        # Stamps of whole seconds are rounded down, either of them.
        return self._first_ns + round((since_s if line.exact else since_s - 1) * SECOND)


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
