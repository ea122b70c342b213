"""HTML page of a batch-size sweep: throughput and peak memory over the batch size."""

import math
from collections.abc import Callable, Iterator, Sequence

from trainperf.benchmark.sweeps.batch_results import SweepPoint, SweepPoints, sweep_text
from trainperf.core.formatting.html.figures import (
    Axis,
    Frame,
    Unit,
    curve,
    dot,
    keys,
    level,
    note,
    short,
    top,
    upright,
)
from trainperf.core.formatting.html.markup import Markup, page, paragraph, section, tag, text
from trainperf.core.formatting.html.palette import COLOURS


_DOT, _KNEE_DOT = 6.0, 11.0

Value = Callable[[SweepPoint], float | None]


def sweep_page(sweep: SweepPoints) -> str:
    """The whole file: the answer, two figures, and every point."""
    answer, rows, notes = sweep_text(sweep).split("\n\n")
    first, *others = answer.splitlines()
    table = Markup("\n".join(text(row) for row in rows.splitlines()))
    return page(
        first,
        tag("header", tag("h1", text(first)), paragraph(" ".join(others))),
        section(f"{sweep.unit.capitalize()}/s over the batch size", _throughput(sweep)),
        section("Peak memory over the batch size", _memory(sweep)),
        section("Every point", tag("pre", table, kind="scroll small"), paragraph(notes, "soft")),
    )


def _throughput(sweep: SweepPoints) -> Markup:
    """The knee of each length is a large dot; where memory ended is marked for a single length."""
    rates = [point.per_s for point in sweep.points if point.per_s is not None]
    if not rates:
        return paragraph("Nothing was measured: no batch size fits.")
    frame = _frame(sweep, Axis(low=0.0, high=top(rates), say=short))
    marks = list(_lines(sweep, frame, lambda point: point.per_s))
    knee = sweep.knee() if len(sweep.lengths) == 1 else None
    if knee is None or knee.refused is None:
        return _drawn(sweep, frame, marks, [])
    x = frame.x(math.log2(knee.refused))
    ended = note(x, frame.height - 12, f"{knee.refused:,} does not fit")
    return _drawn(sweep, frame, [*marks, upright(x, frame.height)], [ended])


def _memory(sweep: SweepPoints) -> Markup:
    peaks = [float(p.peak_bytes) for p in sweep.points if p.peak_bytes and not p.refused]
    if not peaks:
        return Markup("")
    held = [*peaks, float(sweep.limit_bytes or 0)]
    up = Axis(low=0.0, high=top(held), unit=Unit.of_bytes(max(held)))
    frame = _frame(sweep, up)
    marks = list(_lines(sweep, frame, lambda point: point.peak_bytes))
    over = []
    if sweep.limit_bytes is not None:
        y = frame.y(sweep.limit_bytes)
        marks.append(level(y))
        over.append(note(0, y + 2, "limit"))
    return _drawn(sweep, frame, marks, over)


def _frame(sweep: SweepPoints, up: Axis) -> Frame:
    sizes = sorted({math.log2(point.batch_size) for point in sweep.points})
    low, high = sizes[0] - 0.2, sizes[-1] + 0.2
    return Frame(across=Axis(low=low, high=high, say=_size), up=up)


def _size(power: float) -> str:
    """A batch size, which may be fractional between the powers of two."""
    size = 2**power
    return f"{size:,.0f}" if size >= 100 else f"{size:.3g}"


def _drawn(
    sweep: SweepPoints, frame: Frame, marks: Sequence[Markup], over: Sequence[Markup]
) -> Markup:
    picture = frame.picture("over the batch size", marks, names=("batch size", ""), over=over)
    if sweep.lengths == (1,):
        return picture
    named = ((f"length {length:,}", f"k{n % COLOURS}") for n, length in enumerate(sweep.lengths))
    return Markup(picture + keys(named))


def _lines(sweep: SweepPoints, frame: Frame, value: Value) -> Iterator[Markup]:
    """A line for every length, through its points."""
    for number, length in enumerate(sweep.lengths):
        kind = f"s{number % COLOURS}"
        knee = sweep.knee(length)
        own = [(p, value(p)) for p in sweep.points if p.length == length and not p.refused]
        spots = [
            (p, (frame.x(math.log2(p.batch_size)), frame.y(v))) for p, v in own if v is not None
        ]
        yield curve([place for _, place in spots], kind)
        for point, place in spots:
            large = knee is not None and point.batch_size == knee.batch_size
            yield dot(place, _KNEE_DOT if large else _DOT, kind, _label(point))


def _label(point: SweepPoint) -> str:
    rate = "" if point.per_s is None else f": {short(point.per_s)}/s"
    return f"batch {point.batch_size:,}{rate}"
