"""Attempts of a run before the latest: how far each came, how it ended, and what that cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.record_file import FileEnd, RecordFile, end_of
from trainperf.analysis.run.window import start_time


_STEPS = "steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The attempts before the latest, on the lowest rank; at least one."""

    attempts: int
    steps: int
    """Of all of them."""
    reason: str
    """How the last of them ended, as in `EndMark`; empty where it ended without a word."""
    ended_s: float
    """When it did: seconds since 1970, by the clock of the training."""
    without_training_s: float
    """From the end of each to the start of the next."""
    again_steps: int | None
    """Steps done twice; `None` where an attempt does not say where it went on."""


def earlier(run: Run) -> Earlier | None:
    """`None` for a run of one attempt.

    Raises:
        OSError: The end of a file cannot be read.
    """
    firsts = [files[0] for files in run.attempts]
    ends = [end_of(file) for file in firsts[:-1]]
    without_s, ended_s = 0.0, 0.0
    for file, end, later in zip(firsts, ends, firsts[1:], strict=False):
        began, went_on = (start_time(each.info.started_at) for each in (file, later))
        ended_s = began.timestamp() + end.at_ns / 1e9 if began else file.modified_s
        without_s += max(0.0, went_on.timestamp() - ended_s) if went_on else 0.0
    if not ends:
        return None
    return Earlier(
        attempts=len(ends),
        steps=sum(end.step + 1 for end in ends),
        reason=ends[-1].mark.reason if ends[-1].mark else "",
        ended_s=ended_s,
        without_training_s=without_s,
        again_steps=_again(firsts, ends),
    )


def _again(firsts: Sequence[RecordFile], ends: Sequence[FileEnd]) -> int | None:
    """Steps of the job that two attempts did, by where each began."""
    begins = [
        file.info.totals.get(_STEPS, None if place else 0) for place, file in enumerate(firsts)
    ]
    if None in begins:
        return None
    known = [begin or 0 for begin in begins]
    reached = [begin + end.step + 1 for begin, end in zip(known, ends, strict=False)]
    return sum(max(0, step - begin) for step, begin in zip(reached, known[1:], strict=True))
