"""Case: one claim of the field, run and measured on this machine; and the run of a whole recipe."""

from pathlib import Path
from typing import Literal

import msgspec

from trainperf.core.formatting.table import Table


CaseVerdict = Literal["holds", "does not hold here", "no difference", "cannot tell", "needs CUDA"]
"""*No difference* is shown, not assumed: the whole interval is within 5 %.  See `verdicts`."""

Quantity = Literal["s", "B", "B/s", "1/s", "FLOP/s", "1", "%", "×"]
"""Units of a measured value, all SI; a share is `%` with 1.0 for all of it."""


class PublishedFigure(msgspec.Struct, frozen=True, kw_only=True):
    """What others published for the same claim, as read at its source."""

    figure: str
    """The figure with its conditions, in a sentence."""
    source: str
    """Address of the page that it was read on."""
    differs: str
    """Why it cannot be compared number by number with ours."""


class MeasuredRow(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the work and what was measured of it."""

    what: str
    value: float | None = None
    """Median where it was measured repeatedly; `None` where it was not measured."""
    unit: Quantity = "s"
    ratio: float | None = None
    """Value of *against* over this one, so that above 1 is less time, or fewer bytes."""
    low: float | None = None
    """Lower end of the 95 % interval of the ratio; equal to it where the ratio is exact."""
    high: float | None = None
    against: str = ""
    """`what` of the row that the ratio relates to."""
    rounds: int | None = None
    """How many rounds the interval stands on."""
    note: str = ""
    differs: str = ""
    """How its result differs from that of *against* by more than the tolerance; else empty."""


class PlotLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a plot."""

    name: str
    points: tuple[tuple[float, float], ...]


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """Lines on two axes; values are SI."""

    title: str
    lines: tuple[PlotLine, ...]
    across: str
    """Name of the horizontal axis."""
    up: str
    """Name of the vertical axis."""
    across_unit: Quantity = "1"
    up_unit: Quantity = "s"
    log_across: bool = False
    log_up: bool = False


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A claim as it is shown: before, change, measurement, verdict."""

    name: str
    """Short and unique in its recipe, e.g. `channels_last`."""
    title: str = ""
    """What readers see instead, e.g. `Channels last`; empty where the name is one."""
    claim: str
    """A sentence that may turn out to be wrong."""
    verdict: CaseVerdict
    reason: str
    """Why the verdict, and where the claim does not hold, why not here."""
    before: tuple[str, ...] = ()
    """Lines of trainperf's own output, before the change."""
    before_note: str = ""
    """Where no finding is about the claim: that it is so, and what decides instead."""
    change: tuple[str, ...] = ()
    """Lines of code that were changed."""
    measured: tuple[MeasuredRow, ...] = ()
    decided_by: str = ""
    """`what` of the row whose interval decides."""
    published: PublishedFigure | None = None
    plot: Plot | None = None
    """A picture of its own."""
    files: tuple[str, ...] = ()
    """Run directories and traces that it left, relative to the recipe's folder."""
    command: str = ""
    """What runs this case alone; empty where nothing does."""

    @property
    def heading(self) -> str:
        """What it is called where it is read."""
        return self.title or self.name

    @property
    def deciding(self) -> MeasuredRow | None:
        """The row whose interval decides; `None` where nothing was measured."""
        return next((row for row in self.measured if row.what == self.decided_by), None)


class TimelineLane(msgspec.Struct, frozen=True, kw_only=True):
    """What one thread or stream did: begin and duration in seconds, and what it was."""

    name: str
    spans: tuple[tuple[float, float, str], ...]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Lanes on one clock that begins at 0."""

    title: str
    lanes: tuple[TimelineLane, ...]


class RecipeRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a recipe: all that its page shows."""

    recipe: str
    """Name of the recipe, and of its files."""
    title: str
    about: str
    """What it shows, in some sentences without figures."""
    command: str
    machine: dict[str, str]
    took_s: float
    cases: tuple[Case, ...] = ()
    tables: tuple[Table, ...] = ()
    """Tables of its own: a title, rows, and sentences beneath."""
    plots: tuple[Plot, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    printed: tuple[str, ...] = ()
    """What the run printed: no page shows a figure that is not in it."""


def save(run: RecipeRun, path: Path) -> None:
    """Write a run as JSON that a person can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")


def load(path: Path) -> RecipeRun:
    """A run that was saved.

    Raises:
        msgspec.ValidationError: The file is no run of a recipe.
    """
    return msgspec.json.decode(path.read_bytes(), type=RecipeRun)
