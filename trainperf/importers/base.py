"""Base of all importers: what a format of logs is, and the steps that are read from one.

A log has either a time of each step or means over several.  A mean is what each of its steps is
shown with, and nothing of it is called a spread: see `LoggedSteps.mean_of`.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from trainperf.core.errors import LogError
from trainperf.core.loop_kind import NOT_TOLD
from trainperf.core.phases import Gap, Phase
from trainperf.core.steps.block import MEAN_OF
from trainperf.core.steps.records import FACTS, FINISHED, Scalar


MS = 1_000_000
"""Nanoseconds."""
SECOND = 1_000_000_000
"""Nanoseconds."""
_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class LoggedStart(msgspec.Struct, kw_only=True):
    """A job began: what follows is an attempt of its rank.  It is the first event of every log.

    Times that follow are from this start, and the first steps warm up.
    """

    day_ns: int | None = None
    """Nanoseconds since 1970; `None` where the log has no time of day."""
    rank: int = 0


class LoggedSteps(msgspec.Struct, kw_only=True, gc=False):
    """Steps that a log tells one time of, one after the other."""

    wall_ns: int
    """Nanoseconds of a step; of several steps the mean."""
    phases_ns: Mapping[Phase, float] = {}
    """Parts of it that have a time; the rest is in `other`.  Times of different clocks or ranks may
    add up to more than the step: they are then cut in proportion."""
    steps: int = 1
    """How many steps these are."""
    mean_of: int | None = None
    """Over how many steps the log has the mean: by default over these, 1 where a step has its own
    time; 0 where it is the mean of the steps before, which goes on."""
    end_ns: int | None = None
    """End of the last of them, by the log's clock, from the start of the fit; `None` where the log
    has no time: they begin where the ones before ended."""
    tags: int = 0
    micro_batches: int = 1
    facts: dict[str, float | None] = {}
    """Of each of them."""
    own: dict[str, int] = {}
    """Of each of them what has no column, as `Totals.own` names it."""
    last: dict[str, float | None] = {}
    """Facts of the last one alone, e.g. a mean loss, which belongs to no single step."""


class LoggedGap(msgspec.Struct, kw_only=True):
    """Time that a log names and that belongs to no step."""

    gap: Gap
    duration_ns: int


LogEvent = LoggedStart | LoggedSteps | LoggedGap


@dataclass(slots=True, kw_only=True)
class LoggedFit:
    """What a log says of the whole fit; complete when its events are exhausted."""

    ended: str = FINISHED
    """As in `EndMark`."""
    end_ns: int | None = None
    """End of the log by its own clock; by default that of the last event."""
    clock: str = ""
    """What its times are, where that depends on the log; that of the format by default."""
    config: dict[str, Scalar] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """How a number was obtained."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Reading or fact to the clause that says why this log does not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """One format of logs."""

    name: str
    """Value of `--format`."""
    title: str
    """For people, with its article: `a Megatron-LM log`."""
    marks: str
    """What its lines are recognised by, for people."""
    mark: re.Pattern[bytes]
    read: Callable[[Path, LoggedFit], Iterator[LogEvent]]
    """The events of a file in order, which also fill in what it says of the whole fit."""
    loop: str = "imported"
    """Kind of loop that wrote it, as `core.loop_kind` names it."""
    device: str = NOT_TOLD
    """Type of the device, where the format tells."""
    clock: str
    """What its times are, in a clause."""
    holds: Mapping[str, str]
    """Phase, gap or fact to what of the log it is taken from."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Phase or fact to the clause that says why the log cannot have it."""
    cumulative: bool = False
    """Whether the latest file of a job holds what earlier ones do."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The facts that it may hold, as record files have them, with what marks a mean."""
        return (MEAN_OF, *(name for name in self.holds if name in FACTS))

    def why_not(self, name: str) -> str:
        """Why a phase or fact is missing, in a clause."""
        if name in self.holds:
            return f"not covered: this log has no {self.holds[name]}"
        return f"not covered: {self.lacks.get(name, f'{self.title} does not hold it')}"


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file: unpacked, and without the colours of a terminal.

    Raises:
        LogError: A packed file is damaged.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        packed = file.peek(2).startswith(b"\x1f\x8b")
        try:
            for line in gzip.GzipFile(fileobj=file) if packed else file:
                yield _COLOUR.sub(b"", line) if b"\x1b" in line else line
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise LogError(f"{path}: packed, and damaged: {error}") from None


def day_ns(moment: bytes) -> int:
    """Nanoseconds since 1970 at a time of day without a zone, which is taken for UTC."""
    return round(datetime.fromisoformat(f"{moment.decode()}+00:00").timestamp() * 1e6) * 1000
