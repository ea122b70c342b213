"""Results of a comparison: plain data in SI units, for reports and gates."""

from typing import Literal

import msgspec

from trainperf.analysis.summary.loss_parity import Parity
from trainperf.core.stats.bootstrap import Source
from trainperf.core.stats.verdict import MARGIN, SpeedVerdict
from trainperf.core.steps.records import Scalar


Where = Literal["before", "after"]
"""One of the two sides."""

Verdict = Literal["faster", "slower", "equal", "undecided", "loss differs", "not comparable"]

Clock = Literal["fit", "steady step"]
"""All time of a training per unit of work, or the median step: what a comparison judges."""

GateVerdict = Literal["pass", "regression", "undecided"]
"""Whether a slowdown beyond a limit is excluded, shown, or neither."""

Decision = Literal["keep", "discard", "cannot tell"]
"""What to do with the change."""

ProofEnd = Literal["decided", "pairs used up", "interrupted", "not comparable"]

COMPARISON_VERSION = 2


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One run, or the repeats of one."""

    name: str
    paths: tuple[str, ...]
    """Run directories of its repeats."""
    steady_steps: int
    """Of all repeats together."""
    world_size: int
    code: str = ""
    """Commit of the script, and whether it was changed since; empty where unknown."""
    coarse: bool = False
    """Whether it was recorded from outside: data wait is all between update and forward."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One setting or fact that differs between the runs."""

    name: str
    before: Scalar
    after: Scalar
    change: str
    """The change it belongs to: facts that change together, e.g. all of the loader, are one."""
    besides_code: bool = False
    """Whether it is neither the code nor a setting of it: a version, the machine, a variable."""


class ReadingChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reading on both sides; of repeats the geometric mean."""

    name: str
    unit: str
    before: float | None
    after: float | None
    ratio: float | None = None
    """`after` over `before`."""
    low: float | None = None
    high: float | None = None
    """Ends of its 95 % interval, by moving-block bootstrap and repeats."""
    verdict: SpeedVerdict | None = None
    """Of readings that are times or rates; `None` where there is no interval."""
    reason: str | None = None
    """Why it is not compared."""


class TraceDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing on which a step of one run spends more time than a step of the other."""

    kind: str
    """`time` of the device or the host, an `operator`'s self time, or a `kernel`'s."""
    name: str
    before_s: float
    """Per step; 0 where its trace does not have it."""
    after_s: float
    below: Where | None = None
    """The side where it is not among the top operators, or kernels: its time there is that of the
    last of them, an upper bound."""


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """How much a run differs from a repeat of itself."""

    relative: float
    """Relative standard deviation from run to run that the interval includes."""
    assumed: bool
    """Nothing was repeated: the figure is assumed, or taken from parts of the runs."""
    source: Source
    """Where the figure comes from."""
    resolution: float
    """Smallest relative change, either way, that this comparison can tell from noise."""
    apart_s: float | None = None
    """Seconds from the end of one run to the start of the other, without repeats; `None` where it
    is not known."""


class Speedup(msgspec.Struct, frozen=True, kw_only=True):
    """How many times faster, with its 95 % interval: above 1 is better, whatever was measured."""

    value: float
    low: float
    high: float
    per_rank: bool
    """Divided by the number of ranks: 1 is perfect scaling."""


class ClockChange(msgspec.Struct, frozen=True, kw_only=True):
    """What one clock says of the change."""

    clock: Clock
    reading: str
    """The reading that it is judged by."""
    verdict: SpeedVerdict
    speedup: Speedup


class FirstSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Where trainings were ended before something that comes back was certain to be in them twice.

    The fit clock speaks of these steps alone then: what comes back may cost more, or less.
    """

    steps: int
    """Of each training at least."""
    period: int = 0
    """Steps after which an epoch, a validation or a checkpoint comes back; 0 if none was known."""

    def least(self, other: "FirstSteps | None") -> "FirstSteps":
        """Of several pairs: the fewest steps, and the longest period."""
        if other is None:
            return self
        return FirstSteps(steps=min(self.steps, other.steps), period=max(self.period, other.period))


class GateOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Of `--fail-on-regression`."""

    limit: float
    """The largest relative slowdown that passes."""
    verdict: GateVerdict


class ProofFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What `trainperf prove` took."""

    pairs: int
    """Of processes, one of either side."""
    most_pairs: int
    ended_by: ProofEnd
    ended_early: bool
    """Whether trainings were ended before they were through."""
    took_s: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One run compared with another."""

    schema: int = COMPARISON_VERSION
    before: Side
    after: Side
    verdict: Verdict
    decision: Decision = "cannot tell"
    """Keep what is faster; discard what is slower, or equal, or has another loss.  Where there is a
    gate: keep what passes it, discard what does not."""
    gate: GateOutcome | None = None
    """`None` where no gate was asked for, or nothing could be compared."""
    proof: ProofFacts | None = None
    """`None` where the runs were there already."""
    reason: str
    """Why the runs are not comparable, or why the deciding reading is the one it is."""
    primary: str | None
    """The reading of the clock that decides."""
    speedup: Speedup | None = None
    """By the clock that decides: the one that the change moved, the fit first; of `first_steps`
    the steady step, if both moved the same way."""
    first_steps: FirstSteps | None = None
    """What the verdict is over, where it is not over all that comes back; `None` otherwise."""
    margin: float = MARGIN
    """Relative change, either way, up to which speeds count as equal."""
    clocks: tuple[ClockChange, ...] = ()
    """Both clocks, the fit first; one where a run has too few steps for the other."""
    noise: Noise | None = None
    parity: Parity
    """The losses at equal work: where they differ, nothing is faster."""
    differences: tuple[Difference, ...] = ()
    readings: tuple[ReadingChange, ...] = ()
    explained: tuple[TraceDifference, ...] = ()
    """From the traces of both, the largest difference first; empty where one has none."""

    @property
    def headline(self) -> ClockChange | None:
        """The clock that decides."""
        return next((clock for clock in self.clocks if clock.reading == self.primary), None)

    @property
    def changes(self) -> tuple[str, ...]:
        """What was changed; with several, the gain cannot be credited to one of them."""
        return tuple(dict.fromkeys(difference.change for difference in self.differences))
