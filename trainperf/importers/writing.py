"""Run directories written from logs: what they hold, and the reasons for what they do not."""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice, repeat
from pathlib import Path
from typing import BinaryIO

import numpy as np

from trainperf.core.errors import LogError
from trainperf.core.formatting.units import plural
from trainperf.core.loop_kind import STEP_CLOCK
from trainperf.core.phases import PHASES, Gap, Phase, Tag
from trainperf.core.readings import (
    DATA_STALL_FRACTION,
    DATA_WAIT_ALL_FRACTION,
    DATA_WAIT_FRACTION,
    FIRST_STEP_S,
    MEMORY_SLOPE_BYTES_PER_STEP,
    OPTIMIZER_STEPS_PER_S,
    OVERHEAD_S,
    SAMPLES_PER_S,
    STEP_IQR_S,
    STEP_MEAN_S,
    STEP_P95_S,
    STEP_P99_S,
    STEP_S,
    phase_reading,
)
from trainperf.core.run_directory import create, record_file
from trainperf.core.stats.warmup import WINDOW, WarmupDetector
from trainperf.core.steps.block import MEAN_OF
from trainperf.core.steps.codec import encode_entry, encode_rows
from trainperf.core.steps.records import (
    FACTS,
    INTERRUPTED,
    EndMark,
    GapRecord,
    Row,
    RunInfo,
    Totals,
)
from trainperf.importers.base import (
    LogEvent,
    LogFormat,
    LoggedColumns,
    LoggedFit,
    LoggedGap,
    LoggedRestart,
    LoggedSteps,
)


_OF_SINGLE_STEPS = (STEP_S, STEP_P95_S, STEP_P99_S, STEP_IQR_S)
"""Readings that a mean over several steps does not have."""

_OF_DATA_WAIT = (DATA_WAIT_FRACTION, DATA_WAIT_ALL_FRACTION, DATA_STALL_FRACTION)

_AFTER = {Gap.VALIDATION: int(Tag.AFTER_VALIDATION), Gap.CHECKPOINT: int(Tag.AFTER_CHECKPOINT)}
_WARMUP = int(Tag.WARMUP)
_AT_ONCE = 4096
"""Rows that are encoded together."""


def write_run(kind: LogFormat, files: Sequence[Path], base: Path) -> Path:
    """Write what logs of one format hold as a new run directory; returns it.

    Args:
        kind: Their format.
        files: The logs.
        base: Directory in which the run directory is made.

    Raises:
        LogError: There is no step in them; nothing is left behind then.
        OSError: A file cannot be read or written.
    """
    fits = kind.read(files)
    run = create(base)
    with ExitStack() as undone:
        undone.callback(shutil.rmtree, run)
        attempts: Counter[int] = Counter()
        for fit in fits:
            steps = 0
            more: LoggedRestart | None = LoggedRestart(started_at=fit.started_at)
            while more is not None:
                path = record_file(run, fit.rank, attempts[fit.rank])
                with path.open("wb") as file:
                    written = _Written(kind, fit, file, attempts[fit.rank])
                    more = written.write(files, more.started_at)
                steps += written.steps
                if written.steps:
                    attempts[fit.rank] += 1
                else:  # it began and was over before its first step
                    path.unlink()
            if not steps:
                raise LogError(f"{_named(files)}: {kind.title}, but no step of it: {kind.marks}")
        undone.pop_all()
    return run


def _named(files: Sequence[Path]) -> str:
    more = f" and {plural(len(files) - 1, 'other file')}" if len(files) > 1 else ""
    return f"{files[0]}{more}"


class _Written:
    """One record file while it is written."""

    def __init__(self, kind: LogFormat, fit: LoggedFit, file: BinaryIO, attempt: int) -> None:
        self.steps = 0
        self._kind, self._fit, self._file, self._attempt = kind, fit, file, attempt
        self._facts = kind.columns[1:]
        self._rows: list[Row] = []
        self._ends_ns = 0
        self._tags = int(Tag.FIRST_IN_EPOCH)
        """Of the next step; a whole number, as combining flags takes longer than reading a step."""
        self._warmup = WarmupDetector()
        self._means: set[int] = set()
        self._first_is_mean = False
        self._present: set[str] = set()

    def write(self, files: Sequence[Path], started_at: str) -> LoggedRestart | None:
        """Write the whole file; what its log goes on with, if that is another attempt."""
        kind, fit = self._kind, self._fit
        note = f"imported from {kind.title}: {_named([Path(file.name) for file in files])}"
        clock = f"{note}; {kind.clock}"
        header = RunInfo(
            started_at=started_at,
            rank=fit.rank,
            world_size=fit.world_size,
            columns=kind.columns,
            device=kind.device,
            reasons=_never(kind),
            notes={"imported": clock},
            config={"loop": kind.loop, "imported_from": kind.name},
            attempt=self._attempt,
        )
        self._file.write(encode_entry(header))
        restart = self._add(fit.events)
        self._flush()
        totals = Totals(
            at_step=self.steps - 1,
            notes={**fit.notes, "imported": f"{note}; {fit.clock}" if fit.clock else clock},
            reasons={**self._reasons(), **fit.reasons},
            config={**fit.config, STEP_CLOCK: fit.clock or kind.clock},
        )
        self._file.write(encode_entry(totals))
        # What the fit says of its end is of its last attempt.
        fit_ns = self._ends_ns if restart else max(self._ends_ns, fit.end_ns or 0)
        ended = INTERRUPTED if restart else fit.ended
        self._file.write(encode_entry(EndMark(reason=ended, fit_ns=fit_ns, steps=self.steps)))
        return restart

    def _add(self, events: Iterator[LogEvent]) -> LoggedRestart | None:
        """All events of this attempt."""
        for event in events:
            if isinstance(event, LoggedSteps):
                self._add_steps(event)
            elif isinstance(event, LoggedColumns):
                self._add_columns(event)
            elif isinstance(event, LoggedGap):
                self._add_gap(event)
            else:
                return event
        return None

    def _add_steps(self, logged: LoggedSteps) -> None:
        number, host_ns = logged.steps, logged.host_ns
        mean_of = number if logged.mean_of is None else logged.mean_of
        wall_ns = sum(host_ns)
        start_ns = self._ends_ns
        if logged.end_ns is not None:
            # A stamp is rounded, so steps may seem to begin before the ones before end.
            start_ns = max(start_ns, logged.end_ns - number * wall_ns)
        tags = logged.tags
        if mean_of == 1:
            tags |= self._tags
        elif mean_of:
            self._means.add(mean_of)
            self._first_is_mean |= not self.steps
        self._tags = 0
        if not self._warmup.ended:
            # A window of the detector is one of steps, however few means they are.
            for _ in range(min(mean_of, WINDOW)):
                self._warmup.is_warmup(wall_ns, tags)
            tags |= _WARMUP
        of_each, of_last = logged.facts, logged.last
        self._present.update(of_each, of_last)
        core = (tags, logged.micro_batches, *host_ns)
        for place in range(number):
            facts = {**of_each, **of_last} if of_last and place == number - 1 else of_each
            row = [self.steps, start_ns, *core, mean_of, *map(facts.get, self._facts)]
            mean_of = 0
            self._rows.append(row)
            self.steps += 1
            start_ns += wall_ns
        self._ends_ns = start_ns
        if len(self._rows) >= _AT_ONCE:
            self._flush()

    def _add_columns(self, logged: LoggedColumns) -> None:
        number, begin = len(logged.tags), 0
        while begin < number and (self._tags or not self._warmup.ended):
            self._add_steps(logged.step(begin))
            begin += 1
        if begin == number:
            return
        self._flush()
        host_ns = logged.host_ns[begin:]
        walls_ns = host_ns.sum(axis=1)
        # A step ends where the log says, or as late as it must, behind the one before.
        spent_ns = np.cumsum(walls_ns)
        ahead_ns = np.full(len(spent_ns), self._ends_ns)
        if logged.end_ns is not None:
            late_ns = np.asarray(logged.end_ns[begin:]) - spent_ns
            ahead_ns = np.maximum.accumulate(np.maximum(late_ns, ahead_ns))
        starts_ns = ahead_ns + spent_ns - walls_ns
        facts = [logged.facts.get(name, repeat(None)) for name in self._facts]
        rows = zip(
            range(self.steps, self.steps + number - begin),
            starts_ns.tolist(),
            logged.tags[begin:],
            logged.micro_batches[begin:],
            *host_ns.T.tolist(),
            repeat(1),
            *(islice(column, begin, None) for column in facts),
        )
        self._file.write(encode_rows(list(rows)))
        self._present.update(logged.facts)
        self.steps += number - begin
        self._ends_ns = int(starts_ns[-1] + walls_ns[-1])

    def _add_gap(self, logged: LoggedGap) -> None:
        self._flush()
        start_ns = self._ends_ns
        if logged.end_ns is not None:
            start_ns = max(start_ns, logged.end_ns - logged.duration_ns)
        gap = GapRecord(
            gap=logged.gap.label,
            start_ns=start_ns,
            duration_ns=logged.duration_ns,
            after_step=self.steps - 1,
        )
        self._file.write(encode_entry(gap))
        self._ends_ns = start_ns + logged.duration_ns
        self._tags |= _AFTER.get(logged.gap, 0)

    def _flush(self) -> None:
        self._file.write(encode_rows(self._rows))
        self._rows.clear()

    def _reasons(self) -> dict[str, str]:
        """What the format may hold, and this log does not."""
        kind, fit = self._kind, self._fit
        reasons: dict[str, str] = {}
        for phase in set(PHASES) - fit.phases - {Phase.OTHER}:
            if phase.label in kind.holds:
                reasons |= _of_phase(phase, kind.why_not(phase.label))
        reasons |= {name: kind.why_not(name) for name in set(self._facts) - self._present}
        if self._means:
            over = f"{max(self._means):,}" if len(self._means) == 1 else _between(self._means)
            only = f"not covered: the log holds means over {over} steps"
            reasons |= dict.fromkeys(_OF_SINGLE_STEPS, only)
            if self._first_is_mean:
                reasons[FIRST_STEP_S] = only
        if not self._warmup.ended and self._means == {self.steps}:
            only = f"not covered: the log holds one mean over all {plural(self.steps, 'step')}"
            reasons |= dict.fromkeys((STEP_MEAN_S, OPTIMIZER_STEPS_PER_S, SAMPLES_PER_S), only)
        return reasons


def _between(means: set[int]) -> str:
    return f"{min(means):,} to {max(means):,}"


def _never(kind: LogFormat) -> dict[str, str]:
    """What no log of this format holds."""
    reasons = {name: kind.why_not(name) for name in FACTS if name not in (*kind.holds, MEAN_OF)}
    for phase in PHASES:
        if phase.label not in kind.holds and phase is not Phase.OTHER:
            reasons |= _of_phase(phase, kind.why_not(phase.label))
    reasons[DATA_STALL_FRACTION] = kind.why_not("data_stall_ns")
    reasons[MEMORY_SLOPE_BYTES_PER_STEP] = "not covered: the log has no memory of every step"
    reasons[OVERHEAD_S] = "not applicable: trainperf did not run in this training"
    return reasons


def _of_phase(phase: Phase, why: str) -> dict[str, str]:
    reasons = {phase_reading(phase.label): f"{why}; it is in `other`"}
    if phase is Phase.DATA_WAIT:
        reasons |= dict.fromkeys(_OF_DATA_WAIT, why)
    return reasons
