"""The charts of a run over its steps: a table of what is drawn, and one function that draws it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from trainperf.analysis.summary.schema import MOST_RANKS, Summary
from trainperf.core import readings
from trainperf.core.formatting.units import plural
from trainperf.core.phases import Phase
from trainperf.core.steps.block import Column
from trainperf.meters.fold import not_covered
from trainperf.reports.charts.columns import Groups, Span, over
from trainperf.reports.charts.lines import Line, LineChart, line_chart
from trainperf.reports.layout.document import Chart


Place = Literal["others", "ranks", "memory", "machine"]
PLACES: tuple[Place, ...] = ("others", "ranks", "memory", "machine")
"""The sections of a report that charts belong to."""

_FEW = 2
"""A line needs so many points."""

_MOST_SHADES = 4
"""Lines of one chart whose shades can be told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A chart: columns over the steps, with their labels."""

    title: str
    what: str
    unit: str = ""
    place: Place = "others"
    columns: Mapping[str, str] = field(default_factory=dict)
    """Empty for that of the all-reduce tail, which each rank has."""
    reading: str = ""
    """Not drawn where an imported log does not cover it."""
    level: bool = False
    total: bool = False
    """Whether it goes on adding up: a single update is skipped or not."""


SERIES = (
    Series(
        title="Data wait",
        what="Share of the step time of all ranks.",
        unit="1",
        columns={
            "data_wait": "host waits for the loader",
            "data_stall": "device idle because of it",
        },
        reading=readings.phase_reading(Phase.DATA_WAIT.label),
    ),
    Series(
        title="Tokens per second",
        what="Tokens of all ranks over the slowest rank's time; effective are those that the mask "
        "keeps.",
        columns={"tokens_effective": "effective", "tokens_padded": "with padding"},
    ),
    Series(
        title="Samples per second",
        what="Samples of all ranks over the slowest rank's time.",
        columns={"samples": "samples"},
    ),
    Series(
        title="GradScaler overflow",
        what="Share of the updates attempted since the first step shown that were skipped.",
        unit="1",
        columns={"overflows": "updates skipped"},
        total=True,
    ),
    Series(title="Loss scale", what="Of the GradScaler.", columns={"loss_scale": "loss scale"}),
    Series(
        title="Loss",
        what="Of the last micro-batch of a step, mean over ranks.",
        columns={"loss": "loss"},
        level=True,
    ),
    Series(
        title="All-reduce tail",
        what="From the last gradient being ready to backward having returned, by rank: who waits "
        "least comes last.",
        unit="s",
        place="ranks",
    ),
    Series(
        title="Memory",
        what="After the step, on the rank with the most.",
        unit="B",
        place="memory",
        columns={
            "peak_bytes": "peak since the process began",
            "reserved_bytes": "held by the allocator",
            "allocated_bytes": "held by tensors",
            "resident_bytes": "resident set of the process",
        },
    ),
    Series(
        title="GPU clock",
        what="Of the multiprocessors, MHz; of several GPUs the lowest.",
        place="machine",
        columns={"machine:sm_mhz": "MHz"},
        level=True,
    ),
    Series(
        title="GPU temperature",
        what="Degrees Celsius; of several GPUs the hottest.",
        place="machine",
        columns={"machine:celsius": "°C"},
        level=True,
    ),
    Series(
        title="GPU power",
        what="Of all sampled GPUs, watts.",
        place="machine",
        columns={"machine:power_w": "W"},
    ),
    Series(
        title="CPUs busy",
        what="Of the host, with this training and with others.",
        place="machine",
        columns={"machine:cpu_own": "this training", "machine:others_cpus": "others"},
    ),
    Series(
        title="Waiting on the host",
        what="Share of the time in which the training thread had no CPU, or some task waited.",
        unit="1",
        place="machine",
        columns={
            "machine:waited": "training thread without a CPU",
            "machine:memory_pressure": "some task waits for memory",
            "machine:io_pressure": "some task waits for a disk",
        },
    ),
)
"""In the order in which they are shown."""


def charts_at(place: Place, groups: Groups, summary: Summary) -> list[Chart]:
    """Those of a section for which something was measured; why not is said with the readings."""
    charts = (chart_of(series, groups, summary) for series in SERIES if series.place == place)
    return [line_chart(chart) for chart in charts if chart.lines]


def chart_of(series: Series, groups: Groups, summary: Summary) -> LineChart:
    """One of them; without lines where none has two values."""
    lines, note = _labels(series, groups, summary), ""
    if series.reading and not_covered(summary.reading(series.reading)):
        lines = {}
    if not series.columns and len(summary.run.ranks) > MOST_RANKS:
        number = plural(len(summary.run.ranks), "rank")
        note = f"{MOST_RANKS} of {number}: those that wait least and most."
    shades = groups.width > 1 and not series.total and len(lines) <= _MOST_SHADES
    drawn = []
    for label, span in lines.items():
        values = _so_far(span) if series.total else span.mean()
        if np.isfinite(values).sum() >= _FEW:
            shade = (span.low, span.high) if shades else None
            x = groups.begins().astype(float)
            drawn.append(Line(label=label, x=x, y=values, shade=shade))
    return LineChart(
        title=series.title,
        what=series.what,
        unit=series.unit,
        lines=drawn,
        note=note,
        level=series.level,
    )


def _so_far(span: Span) -> Column:
    return over(np.cumsum(span.sum), np.cumsum(span.weight))


def _labels(series: Series, groups: Groups, summary: Summary) -> dict[str, Span]:
    """The lines by their labels; of many ranks those that wait least and most."""
    names = series.columns
    if not names and len(summary.run.ranks) > 1:
        names = {f"tail:{place}": f"rank {rank}" for place, rank in enumerate(summary.run.ranks)}
    spans = {label: groups.span(name) for name, label in names.items()}
    measured = {label: span for label, span in spans.items() if span is not None}
    if series.columns or len(measured) <= MOST_RANKS:
        return measured
    waits = {label: span.sum.sum() / span.weight.sum() for label, span in measured.items()}
    order = sorted(measured, key=lambda label: waits[label])
    chosen = {*order[: MOST_RANKS // 2], *order[-MOST_RANKS // 2 :]}
    return {label: span for label, span in measured.items() if label in chosen}
