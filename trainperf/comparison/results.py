"""What is known once runs have been compared?  Plain data in SI units, for reports and gates."""

from typing import Literal

import msgspec

from trainperf.analysis.summary.loss_parity import Parity
from trainperf.core.stats.bootstrap import Source
from trainperf.core.steps.records import Scalar


Where = Literal["before", "after"]
"""One of the two sides."""

Verdict = Literal["faster", "slower", "no clear change", "loss differs", "not comparable"]

COMPARISON_VERSION = 1


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One run, or the repeats of one."""

    name: str
    paths: tuple[str, ...]
    """Of its repeats."""
    steady_steps: int
    """Of all of them together."""
    world_size: int


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One fact about the runs that is not the same."""

    name: str
    before: Scalar
    after: Scalar
    change: str
    """What it belongs to: facts that change together, e.g. all of the loader, are one change."""


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
    verdict: Verdict | None = None
    """Of readings that are times or rates; `None` where there is no interval."""
    reason: str | None = None
    """Why it is not compared."""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a step of one run spends other time on than a step of the other."""

    kind: str
    """`time` of the device or the host, or an `operator`'s self time."""
    name: str
    before_s: float
    """Per step; 0 where its trace does not have it."""
    after_s: float
    below: Where | None = None
    """The side where it is not among the top operators: it took less there than is said, which is
    the time of the last of them."""


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """How much one and the same run differs from itself when it is repeated."""

    relative: float
    """Standard deviation, relative, that the comparison reckons with."""
    assumed: bool
    """Nobody repeated anything: a figure is assumed, or taken from parts of the runs."""
    source: Source
    """Where the figure comes from."""
    resolution: float
    """Relative change, either way, below which nothing is told from noise here."""
    apart_s: float | None = None
    """From the end of one run to the beginning of the other, where nobody repeated them; `None`
    where it is not known."""
    machine: float | None = None
    """Of single runs on a CPU how many times slower the machine itself was during the second: what
    the same small work took at either end of each.  The interval includes that it was this."""


class Speedup(msgspec.Struct, frozen=True, kw_only=True):
    """How many times faster, with its 95 % interval: above 1 is better, whatever was measured."""

    value: float
    low: float
    high: float
    per_rank: bool
    """Divided by the number of ranks: 1 is perfect scaling."""
    fastest: float | None = None
    """The same of the fastest steps, which a busy machine slows least, and which the interval
    includes; `None` where repeats that took turns tell the machine from the change."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs beside each other."""

    schema: int = COMPARISON_VERSION
    before: Side
    after: Side
    verdict: Verdict
    reason: str
    """Why nothing can be compared, or why the primary reading is the one it is."""
    primary: str | None
    """The reading that it stands on."""
    speedup: Speedup | None = None
    noise: Noise | None = None
    parity: Parity
    """The losses at equal work: where they differ, nothing is faster."""
    differences: tuple[Difference, ...] = ()
    readings: tuple[ReadingChange, ...] = ()
    explained: tuple[Explained, ...] = ()
    """From the traces of both, the largest difference first; empty where one has none."""

    @property
    def changes(self) -> tuple[str, ...]:
        """What was changed; with more than one the gain belongs to none of them alone."""
        return tuple(dict.fromkeys(one.change for one in self.differences))


def encode_comparison(comparisons: tuple[Comparison, ...]) -> bytes:
    """As JSON, indented for people: one comparison for each run after the first."""
    return msgspec.json.format(msgspec.json.encode(comparisons), indent=2) + b"\n"
