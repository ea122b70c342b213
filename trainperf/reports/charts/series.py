"""The charts of a run over its steps: a table of what is drawn, and one function that draws it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from trainperf.analysis.summary.ranks import rank_map
from trainperf.analysis.summary.schema import Summary
from trainperf.core import readings
from trainperf.core.formatting.html.palette import COLOURS
from trainperf.core.phases import Phase
from trainperf.meters.fold import not_covered
from trainperf.reports.charts.columns import Groups, over
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
class Series(LineChart):
    """A chart whose lines are columns over the steps, with their labels."""

    place: Place = "others"
    columns: Mapping[str, str] = field(default_factory=dict)
    """Empty for that of the all-reduce tail, which each rank has."""
    reading: str = ""
    """Not drawn where an imported log does not cover it."""
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
        "least comes last; of many ranks those of the table.",
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
    names = series.columns
    if not names:
        # Of many ranks those that differ most, as in the table of them.
        ranks = rank_map(summary)
        places = sorted(ranks.shown[:COLOURS]) if ranks else []
        names = {f"tail:{place}": f"rank {summary.run.ranks[place]}" for place in places}
    if series.reading and not_covered(summary.reading(series.reading)):
        names = {}
    shades = groups.width > 1 and not series.total and len(names) <= _MOST_SHADES
    lines = []
    for name, label in names.items():
        span = groups.span(name)
        if span is not None:
            so_far = over(np.cumsum(span.sum), np.cumsum(span.weight))
            values = so_far if series.total else span.mean()
            shade = (span.low, span.high) if shades else None
            x = groups.begins().astype(float)
            lines.append(Line(label=label, x=x, y=values, shade=shade))
    return replace(series, lines=[line for line in lines if np.isfinite(line.y).sum() >= _FEW])
