"""Windows of a run: which steps of each file are read.

A window is given by steps or by time.  What is inside of it, or of a whole run of days, may still
be more than statistics need: then evenly spaced stretches of steps are read, the same of every
rank, and of the others the sums that the index of a packed part holds.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.record_file import ReadSteps, RecordFile
from trainperf.core.errors import RunError
from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.records import EndMark
from trainperf.core.steps.stretches import STRETCH, Stretches
from trainperf.core.window import RunWindow


MOST_ROWS = 1 << 20
"""Steps times ranks that are read of packed parts: a median of them is right to a thousandth of
what single steps differ by, and a report takes seconds."""

MOST_TRACED = 32
"""Stretches with traced steps that are read for their traces."""

Attempts = tuple[tuple[RecordFile, ...], ...]

_NOTHING = ReadSteps(first=1, last=0)
_NO_TIME = datetime(2000, 1, 1, tzinfo=timezone.utc)
"""Stands for the start of a run that does not say when it was."""


def start_time(started_at: str) -> datetime | None:
    """An ISO 8601 time in UTC; `None` when it is none (Python 3.10 does not know the `Z`)."""
    try:
        start = datetime.fromisoformat(started_at.replace("Z", "+00:00"))
    except ValueError:
        return None
    return start if start.tzinfo else None


def within(attempts: Attempts, window: RunWindow) -> Attempts:
    """The files of a run, of which only that window is read.

    Raises:
        RunError: There is no step in it.
    """
    whole = tuple(tuple(replace(file, chosen=ReadSteps()) for file in files) for files in attempts)
    begun, chosen = 0, []
    until = _moment(whole, window.until)
    since = _moment(whole, window.since)
    for files in whole:
        part = _in_steps(window, begun)
        part = _in_time(part, files[0], since, until)
        chosen.append(tuple(replace(file, chosen=replace(part, begun=begun)) for file in files))
        begun += max(map(last_step, files)) + 1
    if not any(_has_steps(file) for files in chosen for file in files[:1]):
        there = f"steps 0 to {begun - 1:,}" if begun else "no step at all"
        raise RunError(f"no step in this window: the run has {there}{_times(whole)}")
    return tuple(chosen) if window.every_step else thinned(tuple(chosen), MOST_ROWS)


def _times(attempts: Attempts) -> str:
    """From when to when a run has steps, for whoever asks by time; empty where it does not say."""
    begins = start_time(attempts[0][0].info.started_at)
    latest = attempts[-1][0]
    last = start_time(latest.info.started_at)
    if begins is None or last is None:
        return ""
    ends = last + timedelta(microseconds=_end(latest)[1] / 1e3)
    form = "%Y-%m-%dT%H:%M:%S"
    begins, ends = (at.astimezone(timezone.utc) for at in (begins, ends))
    return f", from {begins:{form}} to {ends:{form}} UTC"


def thinned(attempts: Attempts, most_rows: int) -> Attempts:
    """The same, of which so many steps times ranks are read as far as packed parts allow."""
    rows = sum(_packed_rows(file) for files in attempts for file in files)
    if rows <= most_rows:
        return attempts
    return tuple(_every(files, -(-rows // most_rows)) for files in attempts)


def _every(files: Sequence[RecordFile], stride: int) -> tuple[RecordFile, ...]:
    """One stretch of *stride*, the first, the last of each rank, and what traces are read with."""
    numbers: set[int] = set()
    ends: set[int] = set()
    for file in files:
        stretches = file.stretches()
        if stretches is None:
            continue
        inside, _ = file.chosen.split(stretches)
        of_each = (inside["first"] // STRETCH).astype(int)
        numbers.update(of_each.tolist())
        ends.update(of_each[:1].tolist(), of_each[-1:].tolist(), _traced(inside, of_each))
    read = frozenset(sorted(numbers)[::stride]) | ends
    return tuple(replace(file, chosen=replace(file.chosen, stretches=read)) for file in files)


def _traced(stretches: Stretches, numbers: npt.NDArray[np.int64]) -> list[int]:
    """Stretches with profiled or audited steps, and their neighbours: what traces are read with."""
    traced = stretches["tag:profiled"] + stretches["tag:audited"] > 0
    chosen = numbers[traced][:MOST_TRACED].tolist()
    return [number + by for number in chosen for by in (-1, 0, 1)]


def _packed_rows(file: RecordFile) -> int:
    stretches = file.stretches()
    return 0 if stretches is None else int(file.chosen.split(stretches)[0]["steps"].sum())


def last_step(file: RecordFile) -> int:
    """Number of the last step in a file; -1 without one."""
    return _end(file)[0]


def _end(file: RecordFile) -> tuple[int, int]:
    """The last step, and the nanoseconds from the start of the fit to its end."""
    stretches = file.stretches()
    step, end_ns = -1, 0
    if stretches is not None and len(stretches):
        step, end_ns = int(stretches["last"].max()), int(stretches["end_ns"].max())
    for entry in replace(file, chosen=ReadSteps(first=step + 1)).entries():
        if isinstance(entry, StepBlock):
            step = max(step, int(entry.index.max()))
            end_ns = max(end_ns, int((entry.start_ns + entry.wall_ns).max()))
        elif isinstance(entry, EndMark):
            end_ns = max(end_ns, entry.fit_ns)
    return step, end_ns


def _started(file: RecordFile) -> datetime:
    return start_time(file.info.started_at) or _NO_TIME


def _moment(attempts: Attempts, when: timedelta | datetime | None) -> datetime | None:
    if not isinstance(when, timedelta):
        return when
    file = attempts[-1][0]
    return _started(file) + timedelta(microseconds=_end(file)[1] // 1000) - when


def _in_steps(window: RunWindow, begun: int) -> ReadSteps:
    first = max(0, (window.first or 0) - begun)
    if window.last is None:
        return ReadSteps(first=first)
    return ReadSteps(first=first, last=window.last - begun) if window.last >= begun else _NOTHING


def _in_time(
    part: ReadSteps, file: RecordFile, since: datetime | None, until: datetime | None
) -> ReadSteps:
    """Of these steps those that begin from the one moment to the other, by the lowest rank."""
    first, last = part.first, part.last
    if since is not None:
        begins = _first_at(file, since)
        if begins is None:
            return _NOTHING
        first = max(first, begins)
    if until is not None:
        after = _first_at(file, until + timedelta(microseconds=1))
        if after is not None:
            last = after - 1 if last is None else min(last, after - 1)
    return ReadSteps(first=first, last=last)


def _first_at(file: RecordFile, moment: datetime) -> int | None:
    """The first step that begins then or later; `None` if there is none."""
    at_ns = (moment - _started(file)) // timedelta(microseconds=1) * 1000
    stretches, first = file.stretches(), 0
    if stretches is not None and len(stretches):
        before = stretches["end_ns"] < at_ns
        # Stretches are in the order of time.
        first = int(stretches["first"][~before][0] if not before.all() else stretches["last"][-1])
    for entry in replace(file, chosen=ReadSteps(first=first)).entries(STRETCH):
        if isinstance(entry, StepBlock):
            later = entry.start_ns >= at_ns
            if later.any():
                return int(entry.index[later.argmax()])
    return None


def _has_steps(file: RecordFile) -> bool:
    return any(isinstance(entry, StepBlock) for entry in file.entries(STRETCH))
