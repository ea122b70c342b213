"""Windows of a run: which steps of each file are read.

A window is given by steps or by time, and read by steps: of packed parts only the stretches that
are in it.
"""

import math
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import accumulate

from trainperf.analysis.run.record_file import RecordFile, end_of
from trainperf.core.errors import RunError
from trainperf.core.steps.block import StepBlock
from trainperf.core.window import RunWindow


Attempts = tuple[tuple[RecordFile, ...], ...]

_MICROSECOND = timedelta(microseconds=1)

_NO_TIME = datetime(2000, 1, 1, tzinfo=timezone.utc)
"""Stands for the start of a run that does not say when it was."""


def start_time(started_at: str) -> datetime | None:
    """An ISO 8601 time in UTC; `None` when it is none (Python 3.10 does not know the `Z`)."""
    try:
        start = datetime.fromisoformat(started_at.replace("Z", "+00:00"))
    except ValueError:
        return None
    return start if start.tzinfo else None


def numbered_on(attempts: Attempts) -> Attempts:
    """The files of a run, the steps of each attempt numbered on from those of the one before."""
    steps = [1 + max(end_of(file).step for file in files) for files in attempts[:-1]]
    return tuple(
        tuple(replace(file, begun=begun) for file in files)
        for files, begun in zip(attempts, accumulate(steps, initial=0), strict=True)
    )


def within(attempts: Attempts, window: RunWindow) -> Attempts:
    """The files of a run, of which only that window is read.

    Raises:
        RunError: There is no step in it.
    """
    latest = attempts[-1][0]
    since, until = (
        _at(latest, end_of(latest).at_ns) - when if isinstance(when, timedelta) else when
        for when in (window.since, window.until)
    )
    chosen: list[tuple[RecordFile, ...]] = []
    for files in attempts:
        lead, begun = files[0], files[0].begun
        first = 0.0 if since is None else _first_at(lead, since)
        last = math.inf if until is None else _first_at(lead, until + _MICROSECOND) - 1
        first = max(first, (window.first or 0) - begun)
        if window.last is not None:
            last = min(last, window.last - begun)
        chosen.append(tuple(replace(file, first=first, last=last) for file in files))
    if not any(file.first <= min(file.last, end_of(file).step) for file, *_ in chosen):
        steps = latest.begun + max(end_of(file).step for file in attempts[-1]) + 1
        there = f"steps 0 to {steps - 1:,}" if steps else "no step at all"
        began = attempts[0][0].info.started_at
        raise RunError(f"no step in this window: the run has {there}, and began at {began}")
    return tuple(chosen)


def _at(file: RecordFile, ns: int) -> datetime:
    """The moment so long after the start of a fit."""
    return (start_time(file.info.started_at) or _NO_TIME) + timedelta(microseconds=ns // 1000)


def _first_at(file: RecordFile, moment: datetime) -> float:
    """The first step that begins then or later; infinite if there is none."""
    at_ns = (moment - _at(file, 0)) // _MICROSECOND * 1000
    # Parts are in the order of time; what is not packed comes after them.
    parts = list(file.packed.values())
    later = [part.first for part in parts if part.end_ns >= at_ns]
    first = [*later, *(part.last for part in parts[-1:]), 0][0]
    for entry in replace(file, first=first, last=math.inf).entries():
        if isinstance(entry, StepBlock) and entry.start_ns[-1] >= at_ns:
            return float(entry.index[(entry.start_ns >= at_ns).argmax()])
    return math.inf
