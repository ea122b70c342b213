"""Base of all importers: what a format of logs is, and the steps that are read from one.

A log has either a time of each step or means over several.  A mean is what each of its steps is
shown with, and nothing of it is called a spread: see `LoggedSteps.mean_of`.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.core.loop_kind import NOT_TOLD
from trainperf.core.phases import PHASES, Gap, Phase
from trainperf.core.steps.block import MEAN_OF
from trainperf.core.steps.records import FACTS, FINISHED, Scalar


MS = 1_000_000
"""Nanoseconds."""
SECOND = 1_000_000_000
"""Nanoseconds."""
_PHASES = len(PHASES)
_OTHER = int(Phase.OTHER)
_FLOATS = msgspec.json.Decoder(list[float])


class LoggedSteps(msgspec.Struct, kw_only=True):
    """Steps that a log tells one time of, one after the other."""

    host_ns: Sequence[int]
    """Nanoseconds of a step in each phase, in their order; of several steps the mean."""
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
    last: dict[str, float | None] = {}
    """Facts of the last one alone, e.g. a mean loss, which belongs to no single step."""


class LoggedColumns(msgspec.Struct, kw_only=True):
    """Steps that each have a time of their own, one after the other: as many of `LoggedSteps`."""

    host_ns: npt.NDArray[np.int64]
    """A row for each step."""
    end_ns: Sequence[int] | None
    """As in `LoggedSteps`."""
    tags: Sequence[int]
    micro_batches: Sequence[int]
    facts: Mapping[str, Sequence[float | None]]

    def step(self, place: int) -> LoggedSteps:
        """One of them, by its place."""
        return LoggedSteps(
            host_ns=self.host_ns[place].tolist(),
            end_ns=None if self.end_ns is None else self.end_ns[place],
            tags=self.tags[place],
            micro_batches=self.micro_batches[place],
            facts={name: column[place] for name, column in self.facts.items()},
        )


class LoggedGap(msgspec.Struct, kw_only=True):
    """Time that a log names and that belongs to no step."""

    gap: Gap
    duration_ns: int
    end_ns: int | None = None
    """As in `LoggedSteps`."""


class LoggedRestart(msgspec.Struct, kw_only=True):
    """The job began anew in the same log: what follows is another attempt of the same rank.

    Its times are from its own start, and its first steps warm up again.
    """

    started_at: str = ""
    """As in `LoggedFit`."""


LogEvent = LoggedSteps | LoggedColumns | LoggedGap | LoggedRestart


@dataclass(slots=True, kw_only=True)
class LoggedFit:
    """What one rank logged in one attempt.

    The rank, the start and the number of ranks hold from the start; the rest may change until the
    events are exhausted.
    """

    events: Iterator[LogEvent]
    rank: int = 0
    world_size: int = 1
    """Ranks that wrote logs of their own; a log of the whole job is that of one."""
    started_at: str = ""
    """ISO 8601; empty where the log has no time of day."""
    ended: str = FINISHED
    """As in `EndMark`."""
    end_ns: int | None = None
    """End of the log by its own clock; by default that of the last event."""
    clock: str = ""
    """What its times are, where that depends on the log; that of the format by default."""
    phases: set[Phase] = field(default_factory=set)
    """Phases that the log has times of."""
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
    read: Callable[[Sequence[Path]], Sequence[LoggedFit]]
    """The fits in some files; of one rank in the order of time."""
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

    @property
    def columns(self) -> tuple[str, ...]:
        """The facts that it may hold, as record files have them, with what marks a mean."""
        return (MEAN_OF, *(name for name in self.holds if name in FACTS))

    def why_not(self, name: str) -> str:
        """Why a phase or fact is missing, in a clause."""
        if name in self.holds:
            return f"not covered: this log has no {self.holds[name]}"
        return f"not covered: {self.lacks.get(name, f'{self.title} does not hold it')}"


def phases_ns(wall_ns: int, spent: Mapping[Phase, float]) -> tuple[list[int], bool]:
    """The phases of a step, the rest in `other`, and whether they had to be cut.

    Times of different clocks or ranks may add up to more than the step: they are then cut in
    proportion, so that a step's phases always sum to it.
    """
    named = sum(spent.values())
    scale = wall_ns / named if named > wall_ns else 1.0
    host = [0] * _PHASES
    rest = wall_ns
    for phase, ns in spent.items():
        host[phase] = part = round(ns * scale)
        rest -= part
    if rest < 0:  # rounding of up to eight numbers
        largest = max(range(_PHASES), key=host.__getitem__)
        host[largest] += rest
    else:
        host[_OTHER] += rest
    # A thousandth is what is lost where each is rounded to a hundredth of a millisecond.
    return host, named > wall_ns * 1.001


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, as they are."""
    with path.open("rb", buffering=1 << 20) as file:
        yield from file


def floats(texts: Sequence[bytes]) -> list[float]:
    """The numbers of many texts; NaN for what is none."""
    try:
        numbers = _FLOATS.decode(b"[" + b",".join(texts) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [_float(text) for text in texts]
    return numbers if len(numbers) == len(texts) else [_float(text) for text in texts]


def _float(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


class LossWatch:
    """The losses of a fit: which are numbers, and since when they are not.

    Args:
        fit: Whose note says so.
    """

    def __init__(self, fit: LoggedFit) -> None:
        self._fit = fit

    def take(self, loss: float, step: int) -> float | None:
        """The loss after a step as it is recorded: `None` for one that is not finite."""
        if math.isfinite(loss):
            self._fit.notes.pop("loss", None)
            return loss
        self._fit.notes.setdefault("loss", f"not finite since step {step}")
        return None
