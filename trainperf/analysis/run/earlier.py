"""Attempts of a run before the latest: how far each came, how it ended, and what that cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.record_file import RecordFile, end_of
from trainperf.analysis.run.window import start_time


_STEPS = "steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedAttempt:
    """An attempt that another one followed, on its lowest rank."""

    steps: int
    reason: str
    """As in `EndMark`; empty where it ended without a word."""
    ended_s: float
    """Seconds since 1970, by the clock of the training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """All attempts before the latest, in their order; at least one."""

    attempts: Sequence[EndedAttempt]
    without_training_s: float
    """From the end of each to the start of the next."""
    again_steps: int | None
    """Steps done twice; `None` where an attempt does not say where it went on."""

    @property
    def steps(self) -> int:
        """Of all of them."""
        return sum(each.steps for each in self.attempts)


def earlier(run: Run) -> Earlier | None:
    """`None` for a run of one attempt.

    Raises:
        OSError: The end of a file cannot be read.
    """
    firsts = [files[0] for files in run.attempts]
    if len(firsts) < 2:
        return None
    before = [_ended(file) for file in firsts[:-1]]
    pauses = [
        start - attempt.ended_s
        for start, attempt in zip(map(_started_s, firsts[1:]), before, strict=True)
        if start
    ]
    return Earlier(
        attempts=before,
        without_training_s=sum(max(0.0, pause_s) for pause_s in pauses),
        again_steps=_again(firsts, before),
    )


def _ended(file: RecordFile) -> EndedAttempt:
    end, started_s = end_of(file), _started_s(file)
    return EndedAttempt(
        steps=end.step + 1,
        reason=end.mark.reason if end.mark else "",
        ended_s=file.modified_s if started_s is None else started_s + end.at_ns / 1e9,
    )


def _started_s(file: RecordFile) -> float | None:
    start = start_time(file.info.started_at)
    return None if start is None else start.timestamp()


def _again(firsts: Sequence[RecordFile], before: Sequence[EndedAttempt]) -> int | None:
    begins = [file.info.totals.get(_STEPS) for file in firsts]
    reached, again = before[0].steps + (begins[0] or 0), 0
    for place, begin in enumerate(begins[1:], 1):
        if begin is None:
            return None
        again += max(0, reached - begin)
        reached = begin + (before[place].steps if place < len(before) else 0)
    return again
