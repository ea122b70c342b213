"""Contents of `trials.json`: what changes brought, switched on and off in one training."""

from typing import ClassVar, Literal

import msgspec

from trainperf.core.artifacts import Document
from trainperf.core.stats.verdict import wide


TrialKind = Literal["change", "ceiling"]
TrialVerdict = Literal[
    "faster", "slower", "equal", "undecided", "loss differs", "failed", "not applicable"
]

NEARLY_NOTHING = 1.05
"""Where no more than this is to be gained, whatever it is, a trial ends."""

MEASURED: tuple[TrialVerdict, ...] = ("faster", "slower", "equal", "undecided")
"""Verdicts on a speed-up that is that of the same training."""


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one change brought in this training, on this machine.

    A speed-up is the time of a step without the change over that with it, by blocks of steps that
    took turns in one process; all time of those steps, waits for data included.  Not included: the
    first step with the change, epochs, validation.
    """

    id: str
    """Unique in the file, e.g. `autocast_bf16`."""
    kind: TrialKind
    """A change that can be made, or a ceiling: what a whole family of changes brings at most."""
    title: str
    """What was tried, in a few words."""
    verdict: TrialVerdict
    speedup: float | None = None
    low: float | None = None
    """Lower end of its interval: all looks at it together are right with 95 %."""
    high: float | None = None
    loss_before: float | None = None
    """Mean loss of some steps without it; `None` where it was not compared, or is not finite."""
    loss_after: float | None = None
    """Of the same batches with it, from the same weights."""
    memory_before: int | None = None
    """Most bytes that the device's allocator had handed out in the blocks without it, the copy of
    the training's state not counted; `None` on a CPU, whose processes tell no such peak."""
    memory_after: int | None = None
    """In the blocks with it."""
    first_step_s: float | None = None
    """Host time of the first step with it, e.g. with the compilation."""
    apply: str = ""
    """The line to write."""
    where: str = ""
    """Where it belongs, e.g. `Trainer(…)`; empty where the line says it."""
    reason: str = ""
    """Why there is no number, or what to know about it."""
    rules: tuple[str, ...] = ()
    """Findings whose advice it is, or whose bound it measures."""
    parts: tuple[str, ...] = ()
    """Of a set: the trials in it, in the order in which they were added."""
    pairs: int = 0
    """Blocks with it that were compared with one without."""
    took_s: float = 0.0
    """Host time that the trial took."""

    @property
    def counts(self) -> bool:
        """Whether the speed-up is one of the same training."""
        return self.verdict in MEASURED and self.speedup is not None

    @property
    def little_to_gain(self) -> bool:
        """Whether it brings no more than `NEARLY_NOTHING`, be it faster or slower."""
        return self.counts and self.high is not None and self.high <= NEARLY_NOTHING

    @property
    def resolved(self) -> bool:
        """Whether the interval of the speed-up means something: see `wide`."""
        return self.low is not None and self.high is not None and not wide(self.low, self.high)


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The training as it is, from the blocks between the trials."""

    step_s: float
    """Median of the blocks' mean step, host clock."""
    blocks: int


class Trials(Document, frozen=True, kw_only=True):
    """All that was tried in one run, changes by what they bring, then ceilings."""

    file: ClassVar[str] = "trials.json"
    baseline: Baseline | None
    """`None` while nothing has been measured."""
    trials: tuple[TrialResult, ...]
    planned: int = 0
    """Trials that apply, the sets not counted."""
    trying: str = ""
    """Id of the one that is running; empty once all are over."""
    script: str = ""
    """That was tried, as it was started."""
    restored: str = ""
    """What was put back after each trial, e.g. `weights, optimizer, random generators`."""
    took_s: float = 0.0

    @property
    def best(self) -> TrialResult | None:
        """The change, or set of changes, that brings most; `None` where none is faster."""
        faster = [t for t in self.trials if t.kind == "change" and t.verdict == "faster"]
        return max(faster, key=lambda trial: trial.speedup or 0.0, default=None)


def in_order(trials: list[TrialResult]) -> tuple[TrialResult, ...]:
    """Changes before ceilings, each by its speed-up; what has none comes last, as it was tried."""
    return tuple(
        sorted(
            trials,
            key=lambda trial: (
                trial.kind == "ceiling",
                not trial.counts,
                -(trial.speedup or 0.0),
            ),
        )
    )
