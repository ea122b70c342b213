"""The small charts of a run: lines over groups of steps, and the reason where there are none."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainperf.analysis.summary.schema import MOST_RANKS, Summary
from trainperf.core import readings
from trainperf.core.formatting.html.figures import (
    Axis,
    Frame,
    Point,
    Unit,
    area,
    curve,
    keys,
    short,
    top,
)
from trainperf.core.formatting.html.markup import Markup, paragraph, tag, text
from trainperf.core.formatting.html.palette import COLOURS
from trainperf.core.formatting.units import count, duration, plural, share, size
from trainperf.core.phases import Phase
from trainperf.core.steps.block import Column
from trainperf.meters.fold import not_covered
from trainperf.reports.charts.columns import Groups, Span, over
from trainperf.reports.layout.document import Chart, Part, missing


_FEW = 2
"""A line needs so many points."""

_FAR = 2.0
"""Times the usual value beyond which single steps are cut off, and said."""

_USUAL = 0.95
"""Quantile of the groups that is usual."""

_SAY: dict[str, Callable[[float], str]] = {"s": duration, "B": size, "1": share}

_LEVELS = frozenset({"loss", "machine_clock", "machine_heat"})
"""Charts of which the level counts for nothing: their axis need not begin at 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart, a value per group of steps; NaN is a missing one."""

    label: str
    values: Column
    single: Span | None = None
    """Extremes of single steps in each group; `None` where only the value counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallChart:
    """Its groups of steps are those of the step-time breakdown."""

    key: str
    title: str
    what: str
    """What is drawn, in one sentence."""
    unit: str
    """`s`, `B`, `1/s`, `1` (a share of one) or empty (a plain number)."""
    lines: list[Line]
    absent: str = ""
    """Why there is nothing to draw: it does not apply, or it was not measured."""
    note: str = ""
    """What must be known with it."""


def small_charts(charts: Sequence[SmallChart], groups: Groups) -> list[Part]:
    """The pictures, and beneath them what was not measured."""
    drawn = [Chart(_drawn(chart, groups), small=True) for chart in charts if _lines(chart)]
    absent = [
        (chart.title, chart.absent or "fewer than two steps have a value")
        for chart in charts
        if not _lines(chart)
    ]
    return [*drawn, *missing(absent)]


def charts_of(groups: Groups, summary: Summary) -> list[SmallChart]:
    """All of them, in the order in which they are shown."""
    return [_chart(spec, groups, summary) for spec in _SPECS]


def _lines(chart: SmallChart) -> list[Line]:
    return [line for line in chart.lines if np.isfinite(line.values).sum() >= _FEW]


def _drawn(chart: SmallChart, groups: Groups) -> Markup:
    lines, begins = _lines(chart), groups.begins().astype(float)
    frame = _frame(chart, begins)
    marks = [
        mark
        for place, line in enumerate(lines)
        for mark in _curves(frame, line, begins, place % COLOURS)
    ]
    named = keys((line.label, f"k{place % COLOURS}") for place, line in enumerate(lines))
    inside = [tag("h3", text(chart.title)), frame.picture(chart.what, marks), named]
    return tag("div", *inside, paragraph(_caption(chart, frame), "soft small"))


def _caption(chart: SmallChart, frame: Frame) -> str:
    shade = "The shade spans single steps." if _singles(chart) else ""
    most = max([*_values(chart), *_singles(chart)])
    beyond = f"Beyond the picture: up to {_SAY.get(chart.unit, count)(most)}."
    cut = beyond if most > frame.up.high else ""
    return " ".join(part for part in (chart.what, shade, cut, chart.note) if part)


def _values(chart: SmallChart) -> list[float]:
    every = np.concatenate([line.values for line in _lines(chart)])
    return [float(value) for value in every[np.isfinite(every)]]


def _singles(chart: SmallChart) -> list[float]:
    """The largest single steps of the groups."""
    spans = [line.single for line in _lines(chart) if line.single is not None]
    return [float(value) for span in spans for value in span.high if np.isfinite(value)]


def _frame(chart: SmallChart, begins: Column) -> Frame:
    values = _values(chart)
    usual = sorted(values)[int(_USUAL * (len(values) - 1))]
    # Where nearly all is small, it is that which is to be seen.
    largest = _FAR * usual if max(values) > _FAR**2 * usual > 0 else max(values)
    single = max(_singles(chart), default=0.0)
    high = top([largest, min(single, _FAR * usual)])
    low = min(0.0, *values)
    if chart.key in _LEVELS and max(values) > min(values):
        margin = 0.05 * (max(values) - min(values))
        low, high = min(values) - margin, max(values) + margin
    units = {"s": Unit.of_seconds(high), "B": Unit.of_bytes(high), "1": Unit.of_shares()}
    say = None if chart.unit in units else short
    return Frame(
        across=Axis(low=begins[0], high=begins[-1], say=short, whole=True),
        up=Axis(low=low, high=high, unit=units.get(chart.unit, Unit()), say=say),
        height=120,
    )


def _curves(frame: Frame, line: Line, begins: Column, colour: int) -> Iterator[Markup]:
    single = line.single
    if single is not None:
        places = np.flatnonzero(single.count)
        upper: list[Point] = [(frame.x(begins[n]), frame.y(single.high[n])) for n in places]
        lower = [(frame.x(begins[n]), frame.y(single.low[n])) for n in reversed(places)]
        yield area([*upper, *lower], f"band g{colour}")
    there = np.flatnonzero(np.isfinite(line.values))
    points = [(frame.x(begins[n]), frame.y(line.values[n])) for n in there]
    yield curve(points, f"s{colour}")


def mean_line(groups: Groups, name: str, label: str, *, spread: bool = True) -> Line | None:
    """A column as a line of means, with the extremes of single steps if it has a *spread*."""
    span = groups.span(name)
    if span is None:
        return None
    return Line(label=label, values=span.mean(), single=_band(span) if spread else None)


def _band(span: Span) -> Span | None:
    """The extremes; of single steps with others between them a band would be made up."""
    alone = np.array_equal(span.low[span.count > 0], span.high[span.count > 0])
    return None if alone and not span.count.all() else span


def _share_line(groups: Groups, names: tuple[str, str, str], label: str) -> Line | None:
    """A quotient of sums, with the extremes of single steps."""
    part, whole, single = (groups.span(name) for name in names)
    if part is None or whole is None or single is None:
        return None
    return Line(label=label, values=over(part.sum, whole.sum), single=_band(single))


def _rate_line(groups: Groups, name: str, label: str, *, spread: bool = True) -> Line | None:
    amount, single = groups.span(name), groups.span(f"{name}_per_s")
    walls = [groups.span(each) for each in groups.names if each.startswith(f"{name}:wall:")]
    sums = [wall.sum for wall in walls if wall is not None]
    if amount is None or single is None or not sums:
        return None
    values = np.where(amount.count > 0, over(amount.sum, np.maximum.reduce(sums)), np.nan)
    return Line(label=label, values=values, single=_band(single) if spread else None)


def _reason(summary: Summary, name: str) -> str:
    """Why a reading has no value."""
    reading = summary.reading(name)
    return (reading.reason if reading else None) or "not measured in these steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec:
    """A chart of one reading."""

    key: str
    title: str
    what: str
    unit: str
    reading: str
    """Says why there is nothing to draw; empty is that of the memory of the run's device."""
    lines: Callable[[Groups, Summary], list[Line | None]]
    note: Callable[[Groups, Summary], str] = lambda groups, summary: ""  # noqa: ARG005 none


def _chart(spec: _Spec, groups: Groups, summary: Summary) -> SmallChart:
    lines = [line for line in spec.lines(groups, summary) if line is not None]
    return SmallChart(
        key=spec.key,
        title=spec.title,
        what=spec.what,
        unit=spec.unit,
        lines=lines,
        absent="" if lines else _absent(spec, summary),
        note=spec.note(groups, summary) if lines else "",
    )


def _absent(spec: _Spec, summary: Summary) -> str:
    kind = summary.run.device_kind
    if spec.key == "device" and kind.no_device_time:
        return kind.no_device_time
    return _reason(summary, spec.reading or kind.memory)


def _mean_lines(
    labels: dict[str, str], *, spread: bool = True
) -> Callable[[Groups, Summary], list[Line | None]]:
    """Of several columns, by their labels."""
    return lambda groups, _: [
        mean_line(groups, name, label, spread=spread) for name, label in labels.items()
    ]


def _data_wait(groups: Groups, summary: Summary) -> list[Line | None]:
    if not_covered(summary.reading(readings.phase_reading(Phase.DATA_WAIT.label))):
        return []  # an imported log that does not have it
    names = ("waited", "walls", "wait_fraction")
    stalls = ("stalled", "stalled_walls", "stall_fraction")
    return [
        _share_line(groups, names, "host waits for the loader"),
        _share_line(groups, stalls, "device idle because of it"),
    ]


def _tokens(groups: Groups, _: Summary) -> list[Line | None]:
    return [
        _rate_line(groups, "tokens_effective", "effective"),
        _rate_line(groups, "tokens_padded", "with padding", spread=False),
    ]


def _tokens_note(groups: Groups, summary: Summary) -> str:
    if groups.span("tokens_effective") is None:
        return f"With padding; without: {_reason(summary, readings.EFFECTIVE_TOKENS_PER_S)}."
    mask = summary.run.notes.get("tokens", "")
    return f"Mask: {mask}." if mask else ""


def _overflow(groups: Groups, _: Summary) -> list[Line | None]:
    attempts, skipped = groups.span("attempts"), groups.span("overflows")
    if attempts is None or skipped is None:
        return []
    # A single update is skipped or not: only a share that goes on adding up can be read.
    so_far = over(np.cumsum(skipped.sum), np.cumsum(attempts.sum))
    return [Line(label="updates skipped", values=so_far)]


def _rank_spans(groups: Groups, summary: Summary, key: str) -> dict[int, Span]:
    """Each rank's values, those of the ranks that wait least first."""
    spans = {
        rank: span
        for place, rank in enumerate(summary.run.ranks)
        if (span := groups.span(f"{key}:{place}")) is not None
    }
    waits = {rank: float(span.sum.sum() / span.count.sum()) for rank, span in spans.items()}
    return {rank: spans[rank] for rank in sorted(spans, key=lambda rank: waits[rank])}


def _rank_lines(key: str) -> Callable[[Groups, Summary], list[Line | None]]:
    def lines(groups: Groups, summary: Summary) -> list[Line | None]:
        spans = _rank_spans(groups, summary, key)
        chosen = list(spans)
        if len(chosen) > MOST_RANKS:
            chosen = [*chosen[: MOST_RANKS // 2], *chosen[-MOST_RANKS // 2 :]]
        return [Line(label=f"rank {rank}", values=spans[rank].mean()) for rank in sorted(chosen)]

    return lines


def _rank_note(_: Groups, summary: Summary) -> str:
    number = len(summary.run.ranks)
    if number <= MOST_RANKS:
        return ""
    return f"{MOST_RANKS} of {plural(number, 'rank')}: those that wait least and most."


_SPECS = (
    _Spec(
        key="device",
        title="Device time",
        what="Time between events on the device's own stream, by what it was for.",
        unit="s",
        reading=readings.DATA_STALL_FRACTION,
        lines=_mean_lines(
            {
                "data_stall_ns": "idle for lack of data",
                "h2d_device_ns": "copy to the device",
                "tail_ns": "all-reduce tail",
            }
        ),
    ),
    _Spec(
        key="data_wait",
        title="Data wait",
        what="Share of the step time of all ranks.",
        unit="1",
        reading=readings.DATA_WAIT_FRACTION,
        lines=_data_wait,
    ),
    _Spec(
        key="tokens",
        title="Tokens per second",
        what="Tokens of all ranks over the slowest rank's time; effective are those that the mask "
        "keeps.",
        unit="1/s",
        reading=readings.EFFECTIVE_TOKENS_PER_S,
        lines=_tokens,
        note=_tokens_note,
    ),
    _Spec(
        key="samples",
        title="Samples per second",
        what="Samples of all ranks over the slowest rank's time.",
        unit="1/s",
        reading=readings.SAMPLES_PER_S,
        lines=lambda groups, _: [_rate_line(groups, "samples", "samples")],
    ),
    _Spec(
        key="overflow",
        title="GradScaler overflow",
        what="Share of the updates attempted since the first step shown that were skipped.",
        unit="1",
        reading=readings.OVERFLOW_RATE,
        lines=_overflow,
    ),
    _Spec(
        key="loss_scale",
        title="Loss scale",
        what="Of the GradScaler.",
        unit="",
        reading=readings.LOSS_SCALE,
        lines=_mean_lines({"loss_scale": "loss scale"}, spread=False),
    ),
    _Spec(
        key="tail",
        title="All-reduce tail",
        what="From the last gradient being ready to backward having returned, by rank.",
        unit="s",
        reading=readings.ALLREDUCE_TAIL_S,
        lines=_rank_lines("tail"),
        note=_rank_note,
    ),
    _Spec(
        key="skew",
        title="Skew at the all-reduce",
        what="How much longer a rank waits than the one that comes last (which is at 0).",
        unit="s",
        reading=readings.ALLREDUCE_SKEW_S,
        lines=_rank_lines("skew"),
        note=_rank_note,
    ),
    _Spec(
        key="memory",
        title="Memory",
        what="After the step, on the rank with the most.",
        unit="B",
        reading="",
        lines=_mean_lines(
            {
                "peak_bytes": "peak since the process began",
                "reserved_bytes": "held by the allocator",
                "allocated_bytes": "held by tensors",
                "resident_bytes": "resident set of the process",
            }
        ),
    ),
    _Spec(
        key="loss",
        title="Loss",
        what="Of the last micro-batch of a step, mean over ranks.",
        unit="",
        reading=readings.LOSS,
        lines=_mean_lines({"loss": "loss"}),
        note=lambda _, summary: summary.readings[readings.LOSS].reason or "",
    ),
)
