"""Results of a batch-size sweep: measured points, the knee of the curve, their text and their page.

SI units; `None` means *not measured*.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from trainperf.benchmark.calls import PeakMemory
from trainperf.core.errors import ConfigError
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
from trainperf.core.formatting.html.markup import (
    Markup,
    fragment,
    page,
    paragraph,
    section,
    tag,
    text,
)
from trainperf.core.formatting.html.palette import COLOURS
from trainperf.core.formatting.table import Table, text_table
from trainperf.core.formatting.units import Scale, count, duration, plural, size
from trainperf.core.formatting.wrap import paragraphs


KNEE_WITHIN = 0.05
"""A batch this close to the best throughput of its length is as good, and takes less memory."""


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One batch size at one length: measured, or why not."""

    batch_size: int
    length: int
    """Of the sequences; 1 in a sweep without lengths."""
    refused: str = ""
    """Why it does not fit; empty if it fits."""
    cold_s: float | None = None
    """The first call with this shape: compilation, autotuning, allocation."""
    median_s: float | None = None
    """Of the timed calls: host clock, device idle at both ends of each."""
    iqr_s: float | None = None
    memory: PeakMemory | None = None
    """Peak of later calls with this shape: on CUDA of the allocator, on a CPU of the process."""
    recompiles: int | None = None
    """Graphs that torch.compile built for this shape, at the first point the first ones; `None`
    where torch does not count them."""
    noisy: bool = False
    """IQR above 10 % of the median."""

    @property
    def per_s(self) -> float | None:
        """Throughput: batch size × length / median.  Padding in the batch counts like text."""
        return None if self.median_s is None else self.batch_size * self.length / self.median_s

    @property
    def peak_bytes(self) -> int | None:
        """Peak memory, if it was measured."""
        return None if self.memory is None else self.memory.peak_bytes


class Knee(msgspec.Struct, frozen=True, kw_only=True):
    """Which batch sizes matter at one length."""

    length: int
    batch_size: int
    """The smallest whose throughput is within `KNEE_WITHIN` of the best one measured."""
    per_s: float
    best: int
    """The batch size of the highest throughput."""
    best_per_s: float
    largest: int
    """The largest size tried that fits."""
    refused: int | None
    """The smallest size tried that does not fit; `None` if all fit."""
    noisy: bool
    """Whether its time or that of the best is noisy: another sweep may differ."""

    @property
    def rising(self) -> bool:
        """Whether no smaller batch comes near the largest: the knee is there or beyond."""
        return self.batch_size == self.largest


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """A finished sweep, its points by length and then by batch size, with its report and plot."""

    unit: Literal["tokens", "samples"]
    limit_bytes: int | None
    points: tuple[SweepPoint, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that were tried, ascending."""
        return tuple(sorted({point.length for point in self.points}))

    def knee(self, length: int | None = None) -> Knee | None:
        """The batch sizes that matter at *length*, by default the longest; `None` if none fits."""
        at = max(self.lengths) if length is None else length
        return knee_of([point for point in self.points if point.length == at])

    def save_plot(self, path: Path | str) -> None:
        """Write throughput and peak memory over the batch size to *path*, an `.html` file.

        A single page without scripts or external resources, with the table below the plots.
        """
        file = Path(path)
        if file.suffix != ".html":
            raise ConfigError(f"{file.name}: a plot is an HTML page; end its name in .html")
        file.write_text(sweep_page(self), encoding="utf-8")

    def __str__(self) -> str:
        return sweep_text(self)

    def _repr_html_(self) -> str:
        """The page of `save_plot` in a notebook."""
        return fragment(*_parts(self))


def knee_of(points: Sequence[SweepPoint]) -> Knee | None:
    """The batch sizes that matter among points of one length; `None` if none was measured."""
    measured = {point.batch_size: point.per_s for point in points if point.per_s is not None}
    noisy = {point.batch_size for point in points if point.noisy}
    if not measured:
        return None
    best = max(measured, key=lambda size: measured[size])
    enough = (1 - KNEE_WITHIN) * measured[best]
    size = min(size for size, per_s in measured.items() if per_s >= enough)
    return Knee(
        length=points[0].length,
        batch_size=size,
        per_s=measured[size],
        best=best,
        best_per_s=measured[best],
        largest=max(measured),
        refused=min((point.batch_size for point in points if point.refused), default=None),
        noisy=not noisy.isdisjoint({size, best}),
    )


_NEAR = f"{KNEE_WITHIN:.0%}".replace("%", " %")


def sweep_text(sweep: Sweep) -> str:
    """The whole report."""
    knees = {length: sweep.knee(length) for length in sweep.lengths}
    answers = [_answer(knee, sweep.unit) for knee in knees.values() if knee is not None]
    answer = [*(answers or ["No batch size fits."]), _fits(sweep, knees)]
    return "\n".join([*paragraphs(answer), "", *_table(sweep, knees), *_notes(sweep)])


def _answer(knee: Knee, unit: str) -> str:
    where = f"Length {knee.length:,}: batch" if knee.length > 1 else "Batch"
    doubt = " (noisy: measure again)" if knee.noisy else ""
    return f"{where} {knee.batch_size:,}, {count(round(knee.per_s))} {unit}/s, {_why(knee)}{doubt}."


def _why(knee: Knee) -> str:
    if knee.rising and knee.refused is not None:
        return "throughput still rising where memory runs out"
    if knee.rising:
        return "throughput still rising: try larger batches"
    if knee.batch_size == knee.best:
        return "the best measured"
    best = f"{count(round(knee.best_per_s))} at batch {knee.best:,}"
    return f"within {_NEAR} of the best ({best})"


def _fits(sweep: Sweep, knees: dict[int, Knee | None]) -> str:
    """The largest that fits at each length, where some do not."""
    if not any(point.refused for point in sweep.points):
        return "All batch sizes fit."
    return f"Largest batch that fits: {'; '.join(_largest(*each) for each in knees.items())}."


def _largest(length: int, knee: Knee | None) -> str:
    where = f" at length {length:,}" if length > 1 else ""
    if knee is None:
        return f"none{where}"
    beyond = "all sizes fit" if knee.refused is None else f"{knee.refused:,} does not"
    return f"{knee.largest:,}{where} ({beyond})"


def _table(sweep: Sweep, knees: dict[int, Knee | None]) -> list[str]:
    names = ("length", "batch", "median", "IQR", "cold", f"{sweep.unit}/s", "peak memory", "graphs")
    shown = [place for place in range(len(names)) if _needed(sweep, place)]
    rows = []
    for point in sweep.points:
        cells = _row(point)
        mark = _mark(point, knees[point.length])
        rows.append((*(cells[place] for place in shown), mark))
    head = (*(names[place] for place in shown), "")
    return text_table(Table(head=head, rows=tuple(rows), words=0, end_words=1))


def _needed(sweep: Sweep, place: int) -> bool:
    """Whether a column is shown: lengths and graphs only where there are any."""
    if place == 0:
        return sweep.lengths != (1,)
    return place != 7 or any(point.recompiles for point in sweep.points)


def _row(point: SweepPoint) -> tuple[str, ...]:
    peak, built = point.peak_bytes, point.recompiles
    timed = point.median_s is not None and point.iqr_s is not None
    scale = Scale.of(point.median_s or 0.0)
    return (
        f"{point.length:,}",
        f"{point.batch_size:,}",
        scale.say(point.median_s or 0.0) if timed else "–",
        scale.say(point.iqr_s or 0.0) if timed else "–",
        "–" if point.cold_s is None else duration(point.cold_s),
        "–" if point.per_s is None else count(round(point.per_s)),
        "–" if peak is None else size(peak),
        "–" if built is None else f"{built:,}",
    )


def _mark(point: SweepPoint, knee: Knee | None) -> str:
    if point.refused:
        return f"does not fit: {point.refused}"
    if knee is not None and point.batch_size == knee.batch_size:
        return "← largest, still rising" if knee.rising else "← knee"
    return ""


def _notes(sweep: Sweep) -> list[str]:
    """How the figures were measured."""
    near = f"within {_NEAR} of the best {sweep.unit}/s of its length"
    notes = [f"The knee is the smallest batch {near}."]
    sources = {p.memory.source for p in sweep.points if p.memory and p.peak_bytes is not None}
    if sources:
        notes.append(f"Peak memory: {', '.join(sorted(sources))}.")
    if sweep.limit_bytes is not None:
        notes.append(f"Limit: {size(sweep.limit_bytes)}.")
    built = [point for point in sweep.points if point.recompiles]
    if len(built) > 1:
        notes.append(_compiled(built, sweep.points))
    noisy = sum(point.noisy for point in sweep.points)
    if noisy:
        notes.append(
            f"Noisy: IQR above 10 % of the median at {plural(noisy, 'point')} of "
            f"{len(sweep.points)}; close other programs, or use a larger repeat."
        )
    return ["", *paragraphs(notes)]


def _compiled(built: Sequence[SweepPoint], points: Sequence[SweepPoint]) -> str:
    total = sum(point.recompiles or 0 for point in built)
    return (
        f"torch.compile built {plural(total, 'graph')} for {len(built)} of {len(points)} shapes: "
        "training on changing shapes pays for each; pad to few, or torch.compile(dynamic=True)."
    )


_DOT, _KNEE_DOT = 6.0, 11.0

Value = Callable[[SweepPoint], float | None]


def sweep_page(sweep: Sweep) -> str:
    """The whole file."""
    return page(sweep_text(sweep).partition("\n")[0], *_parts(sweep))


def _parts(sweep: Sweep) -> tuple[Markup, ...]:
    """The answer, two figures, and every point."""
    answer, rows, notes = sweep_text(sweep).split("\n\n")
    first, *others = answer.splitlines()
    table = Markup("\n".join(text(row) for row in rows.splitlines()))
    return (
        tag("header", tag("h1", text(first)), paragraph(" ".join(others))),
        section(f"{sweep.unit.capitalize()}/s over the batch size", _throughput(sweep)),
        section("Peak memory over the batch size", _memory(sweep)),
        section("Every point", tag("pre", table, kind="scroll small"), paragraph(notes, "soft")),
    )


def _throughput(sweep: Sweep) -> Markup:
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


def _memory(sweep: Sweep) -> Markup:
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


def _frame(sweep: Sweep, up: Axis) -> Frame:
    sizes = sorted({math.log2(point.batch_size) for point in sweep.points})
    low, high = sizes[0] - 0.2, sizes[-1] + 0.2
    return Frame(across=Axis(low=low, high=high, say=_size), up=up)


def _size(power: float) -> str:
    """A batch size, which may be fractional between the powers of two."""
    size = 2**power
    return f"{size:,.0f}" if size >= 100 else f"{size:.3g}"


def _drawn(sweep: Sweep, frame: Frame, marks: Sequence[Markup], over: Sequence[Markup]) -> Markup:
    picture = frame.picture("over the batch size", marks, names=("batch size", ""), over=over)
    if sweep.lengths == (1,):
        return picture
    named = ((f"length {length:,}", f"k{n % COLOURS}") for n, length in enumerate(sweep.lengths))
    return Markup(picture + keys(named))


def _lines(sweep: Sweep, frame: Frame, value: Value) -> Iterator[Markup]:
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
