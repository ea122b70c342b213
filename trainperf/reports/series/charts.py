"""The small charts of a run: lines over groups of steps, and the reason where there are none."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from trainperf.analysis.summary.schema import MOST_RANKS, Summary
from trainperf.core import readings
from trainperf.core.formatting.units import plural
from trainperf.core.phases import Phase
from trainperf.core.steps.block import Column
from trainperf.meters.fold import not_covered
from trainperf.reports.series.columns import Groups, Span, over


_DIGITS = 7
"""Of a number that is drawn: more cannot be seen."""

_FLOATS = msgspec.json.Decoder(list[float])

Numbers = list[float | None]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a chart, a value per group of steps."""

    key: str
    label: str
    values: Numbers
    low: Numbers | None = None
    """Smallest value of a single step in the group; `None` where only the value counts."""
    high: Numbers | None = None
    second: bool = False
    """Whether it belongs to the axis on the right."""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A small chart; its groups of steps are those of the step-time breakdown."""

    key: str
    title: str
    what: str
    """What is drawn, in one sentence."""
    unit: str
    """`s`, `B`, `1/s`, `1` (a share of one) or empty (a plain number)."""
    lines: list[Line]
    absent: str | None = None
    """Why there is nothing to draw: it does not apply, or it was not measured."""
    note: str = ""
    """What must be known with it."""


def charts(groups: Groups, summary: Summary) -> list[Chart]:
    """All of them, in the order in which they are shown."""
    return [_device(groups, summary), *(_chart(spec, groups, summary) for spec in _SPECS)]


def listed(values: Column) -> Numbers:
    """Numbers for a browser, `None` for those that are missing."""
    there = np.isfinite(values)
    present = values[there].tolist()
    # All in one text and back: a hundred lines of a thousand numbers are most of an answer's time.
    text = ",".join([f"%.{_DIGITS}g"] * len(present)) % tuple(present)
    rounded = iter(_FLOATS.decode(f"[{text}]"))
    return [next(rounded) if here else None for here in there.tolist()]


def _line(
    key: str, label: str, values: Column, single: Span | None, *, second: bool = False
) -> Line:
    """A line with the extremes of *single* steps, if they are to be drawn."""
    low, high = (None, None) if single is None else (listed(single.low), listed(single.high))
    if low == high and low is not None and None in low:
        low = high = None  # single steps with others between them: a band would be made up
    return Line(key=key, label=label, values=listed(values), low=low, high=high, second=second)


def mean_line(
    groups: Groups, name: str, label: str, *, spread: bool = True, second: bool = False
) -> Line | None:
    """A column as a line of means, with the extremes of single steps if it has a *spread*."""
    span = groups.span(name)
    if span is None:
        return None
    return _line(name, label, span.mean(), span if spread else None, second=second)


def _share_line(groups: Groups, names: tuple[str, str, str], label: str) -> Line | None:
    """A quotient of sums, with the extremes of single steps."""
    part, whole, single = (groups.span(name) for name in names)
    if part is None or whole is None or single is None:
        return None
    return _line(names[0], label, over(part.sum, whole.sum), single)


def _rate_line(groups: Groups, name: str, label: str, *, spread: bool = True) -> Line | None:
    amount, single = groups.span(name), groups.span(f"{name}_per_s")
    walls = [groups.span(each) for each in groups.names if each.startswith(f"{name}:wall:")]
    sums = [wall.sum for wall in walls if wall is not None]
    if amount is None or single is None or not sums:
        return None
    values = np.where(amount.count > 0, over(amount.sum, np.maximum.reduce(sums)), np.nan)
    return _line(name, label, values, single if spread else None)


def _reason(summary: Summary, name: str) -> str:
    """Why a reading has no value."""
    reading = summary.reading(name)
    return (reading.reason if reading else None) or "not measured in these steps"


def _device(groups: Groups, summary: Summary) -> Chart:
    names = {
        "data_stall_ns": ("idle for lack of data", readings.DATA_STALL_FRACTION),
        "h2d_device_ns": ("copy to the device", readings.H2D_S),
        "tail_ns": ("all-reduce tail", readings.ALLREDUCE_TAIL_S),
    }
    lines = {name: mean_line(groups, name, label) for name, (label, _) in names.items()}
    there = [line for line in lines.values() if line is not None]
    missing = "; ".join(
        f"{label}: {_reason(summary, reading)}"
        for name, (label, reading) in names.items()
        if lines[name] is None
    )
    reason = summary.run.device_kind.no_device_time or missing
    return Chart(
        key="device",
        title="Device time",
        what="Time between events on the device's own stream, by what it was for.",
        unit="s",
        lines=there,
        absent=None if there else reason,
        note=missing if there else "",
    )


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


def _chart(spec: _Spec, groups: Groups, summary: Summary) -> Chart:
    lines = [line for line in spec.lines(groups, summary) if line is not None]
    reading = spec.reading or summary.run.device_kind.memory
    return Chart(
        key=spec.key,
        title=spec.title,
        what=spec.what,
        unit=spec.unit,
        lines=lines,
        absent=None if lines else _reason(summary, reading),
        note=spec.note(groups, summary) if lines else "",
    )


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
        return f"with padding; without: {_reason(summary, readings.EFFECTIVE_TOKENS_PER_S)}"
    return summary.run.notes.get("tokens", "")


def _overflow(groups: Groups, _: Summary) -> list[Line | None]:
    attempts, skipped = groups.span("attempts"), groups.span("overflows")
    if attempts is None or skipped is None:
        return []
    # A single update is skipped or not: only a share that goes on adding up can be read.
    so_far = over(np.cumsum(skipped.sum), np.cumsum(attempts.sum))
    return [
        Line(key="overflow", label="updates skipped", values=listed(so_far)),
        mean_line(groups, "loss_scale", "loss scale", spread=False, second=True),
    ]


def _memory(groups: Groups, _: Summary) -> list[Line | None]:
    names = {
        "peak_bytes": "peak since the process began",
        "reserved_bytes": "held by the allocator",
        "allocated_bytes": "held by tensors",
        "resident_bytes": "resident set of the process",
    }
    return [mean_line(groups, name, label) for name, label in names.items()]


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
        return [
            Line(key=f"rank {rank}", label=f"rank {rank}", values=listed(spans[rank].mean()))
            for rank in sorted(chosen)
        ]

    return lines


def _rank_note(key: str) -> Callable[[Groups, Summary], str]:
    def note(groups: Groups, summary: Summary) -> str:
        number = len(summary.run.ranks)
        if number <= MOST_RANKS or not _rank_spans(groups, summary, key):
            return ""
        return f"{MOST_RANKS} of {plural(number, 'rank')}: those that wait least and most"

    return note


_SPECS = (
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
        what="Share of the updates attempted since the first step shown that were skipped; "
        "on the right the loss scale.",
        unit="1",
        reading=readings.OVERFLOW_RATE,
        lines=_overflow,
    ),
    _Spec(
        key="tail",
        title="All-reduce tail",
        what="From the last gradient being ready to backward having returned, by rank.",
        unit="s",
        reading=readings.ALLREDUCE_TAIL_S,
        lines=_rank_lines("tail"),
        note=_rank_note("tail"),
    ),
    _Spec(
        key="skew",
        title="Skew at the all-reduce",
        what="How much longer a rank waits than the one that comes last (which is at 0).",
        unit="s",
        reading=readings.ALLREDUCE_SKEW_S,
        lines=_rank_lines("skew"),
        note=_rank_note("skew"),
    ),
    _Spec(
        key="memory",
        title="Memory",
        what="After the step, on the rank with the most.",
        unit="B",
        reading="",
        lines=_memory,
    ),
    _Spec(
        key="loss",
        title="Loss",
        what="Of the last micro-batch of a step, mean over ranks.",
        unit="",
        reading="loss",
        lines=lambda groups, _: [mean_line(groups, "loss", "loss")],
        note=lambda _, summary: summary.readings[readings.LOSS].reason or "",
    ),
)
