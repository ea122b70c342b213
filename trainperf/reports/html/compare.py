"""The page of a comparison: the verdict first, then what it stands on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summary.loss_parity import LossCurve, Parity, Unit
from trainperf.comparison.compared_run import ComparedRun, read_opened
from trainperf.comparison.results import Comparison, ReadingChange, TraceDifference
from trainperf.core.engines.base import Engine, in_order
from trainperf.core.formatting.html.figures import Axis, Frame, Point, bar, box, curve, keys, short
from trainperf.core.formatting.html.markup import (
    Markup,
    bullets,
    page,
    paragraph,
    section,
    table,
    tag,
    text,
)
from trainperf.core.formatting.units import duration, plural, words
from trainperf.core.phases import PHASES
from trainperf.reports.comparison import (
    Row,
    answer,
    causes,
    compared,
    loss_sentence,
    notes,
    row,
    settings_sentence,
    speed,
)
from trainperf.reports.html.components import SIDES, missing, not_measured
from trainperf.reports.html.forest import (
    FARTHEST,
    RatioMark,
    drawn_on,
    ratio_axis,
    reach,
    ticks,
    track,
)
from trainperf.reports.html.step_times import WallsFold, beside, pooled
from trainperf.reports.run.rows import phase_rows
from trainperf.reports.surroundings import setting


_GOOD = {"faster": "good", "slower": "bad", "loss differs": "bad"}
"""Classes of the style by verdict; the others are neither."""

_KINDS = {"faster": "good", "slower": "bad"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSide:
    """Those of one run, read once: what is judged, and what is drawn of their steps."""

    runs: Sequence[ComparedRun]
    walls: Sequence[WallsFold]

    @classmethod
    def of(cls, runs: Sequence[tuple[ComparedRun, WallsFold]]) -> "RunSide":
        """Of its repeats."""
        return cls(runs=[run for run, _ in runs], walls=[walls for _, walls in runs])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two sides and their comparison."""

    comparison: Comparison
    before: RunSide
    after: RunSide

    @property
    def names(self) -> tuple[str, str]:
        """For the keys of figures: two runs may have one name."""
        comparison = self.comparison
        return f"before: {comparison.before.name}", f"after: {comparison.after.name}"


def read(sides: Sequence[Sequence[Run]], engine: Engine | None = None) -> list[RunSide]:
    """Read the repeats of each side; where there is an *engine*, several runs at a time."""
    runs = in_order(engine, _read, [run for side in sides for run in side])
    return [RunSide.of(list(islice(runs, len(side)))) for side in sides]


def _read(run: Run) -> tuple[ComparedRun, WallsFold]:
    walls = WallsFold()
    return read_opened(run, observers=[walls]), walls


def render(pairs: Sequence[Pair]) -> str:
    """The whole page; of several comparisons one below the other."""
    title = " · ".join(dict.fromkeys(pair.comparison.after.name for pair in pairs))
    several = [_overview(pairs)] if len(pairs) > 1 else []
    parts = [part for pair in pairs for part in sections(pair)]
    return page(f"{title} · trainperf compare", *several, *parts)


def _overview(pairs: Sequence[Pair]) -> Markup:
    rows = [
        (
            comparison.after.name,
            tag("span", text(comparison.verdict), kind=_GOOD.get(comparison.verdict, "soft")),
            comparison.reason if comparison.speedup is None else speed(comparison.speedup),
        )
        for comparison in (pair.comparison for pair in pairs)
    ]
    before = pairs[0].comparison.before.name
    return tag(
        "header",
        paragraph("trainperf compare", "soft small"),
        tag("h1", text(f"{plural(len(pairs), 'run')} against {before}")),
        table(("run", "verdict", "\u00a0"), rows, words=(0, 1, 2)),
    )


def sections(pair: Pair) -> list[Markup]:
    """A comparison, the verdict first."""
    comparison = pair.comparison
    sides = (pair.before, pair.after)
    curves = [[run.losses for run in side.runs] for side in sides]
    steps = beside([pooled(side.walls) for side in sides], pair.names)
    return [
        _verdict(pair),
        section("Ratios", _forest(comparison), _not_compared(comparison)),
        section("Where a step goes", _phases(pair)),
        section(
            "How long the steps took", steps or not_measured("one of the runs has no steady state")
        ),
        section("What is different", _differences(comparison)),
        section(
            "Loss at equal work",
            _parity(comparison.parity),
            losses(curves, comparison.parity, pair.names),
        ),
        section("What the traces say", _explained(comparison)),
        _foot(comparison),
    ]


def _verdict(pair: Pair) -> Markup:
    comparison = pair.comparison
    kind = _GOOD.get(comparison.verdict, "soft")
    return tag(
        "header",
        paragraph("trainperf compare", "soft small"),
        tag("h1", text(answer(comparison)), kind=kind),
        bullets(notes(comparison)),
    )


def _not_compared(comparison: Comparison) -> Markup:
    """Readings that only one side has."""
    return missing(
        [
            (
                reading.name,
                f"only {'after' if reading.before is None else 'before'}: {reading.reason or ''}",
            )
            for reading in comparison.readings
            if reading.before is None or reading.after is None
        ]
    )


def _phases(pair: Pair) -> Markup:
    """The mean steps of both as bars to one scale."""
    every = [phase_rows(side.runs[0].summary) for side in (pair.before, pair.after)]
    longest_s = max(sum(row.seconds for row in rows) for rows in every)
    drawn = []
    for name, rows in zip(pair.names, every, strict=True):
        step_s = sum(row.seconds for row in rows)
        parts = [(row.seconds, row.phase, f"{row.label}: {row.time}") for row in rows]
        caption = f"{name}, {duration(step_s)}" if rows else f"{name}: no step was recorded"
        drawn.append(paragraph(caption, "soft small") + bar(parts, name, whole=longest_s))
    there = {row.phase for rows in every for row in rows if row.seconds}
    named = ((words(phase.label), f"b{phase}") for phase in PHASES if phase in there)
    return Markup("".join(drawn) + keys(named))


def _differences(comparison: Comparison) -> Markup:
    if not comparison.differences:
        return paragraph(settings_sentence(comparison), "soft")
    rows = [
        (difference.name, setting(difference.before), setting(difference.after), difference.change)
        for difference in comparison.differences
    ]
    several = len(comparison.changes) > 1
    warning = paragraph(settings_sentence(comparison), "warn") if several else Markup("")
    return Markup(
        warning + table(("setting", "before", "after", "belongs to"), rows, words=range(4))
    )


def _parity(parity: Parity) -> Markup:
    kinds = {"same": "good", "differs": "bad", "unknown": "soft"}
    return paragraph(loss_sentence(parity), kinds[parity.verdict])


def _explained(comparison: Comparison) -> Markup:
    """What a step spends other time on, the largest difference first."""
    if not comparison.explained:
        return not_measured("a trace of steps on both sides is needed")
    largest_s = max(
        abs(difference.after_s - difference.before_s) for difference in comparison.explained
    )
    rows_of_causes = causes(comparison)
    rows = [
        _cause(difference, cells, largest_s)
        for difference, cells in zip(comparison.explained, rows_of_causes, strict=True)
    ]
    head = ("per step", "before", "after", "\u00a0", "difference", "\u00a0")
    return table(head, rows, words=(0, 3, 5))


def _cause(difference: TraceDifference, cells: Row, largest_s: float) -> tuple[str | Markup, ...]:
    more_s = difference.after_s - difference.before_s
    end = 0.5 + (more_s / largest_s / 2 if largest_s else 0.0)
    mark = reach(0.5, end, "bad") if more_s > 0 else reach(end, 0.5, "good")
    drawn = track([mark], 0.5)
    return (cells.label, cells.before, cells.after, drawn, cells.ratio, cells.verdict)


def _foot(comparison: Comparison) -> Markup:
    paths = (*comparison.before.paths, *comparison.after.paths)
    return tag("footer", *(paragraph(path) for path in paths))


def _forest(comparison: Comparison) -> Markup:
    """The readings that both sides have, each with its interval; empty if there are none."""
    changes = compared(comparison)
    if not changes:
        return Markup("")
    estimates = [_estimate(change) for change in changes]
    axis = ratio_axis(estimates)
    head = ("reading", "before", "after", ticks(axis), "after / before", "\u00a0")
    rows = []
    for change, estimate in zip(changes, estimates, strict=True):
        cells = row(change, comparison.margin)
        rows.append(
            (
                cells.label,
                cells.before,
                cells.after,
                drawn_on(axis, estimate),
                cells.ratio,
                cells.verdict,
            )
        )
    caption = (
        "Bar: 95 % CI of after / before; dashed line: as before. Green is faster, red slower, grey "
        f"equal, undecided or neither. A ring has no interval; beyond {FARTHEST:g}× a mark is at "
        "the edge."
    )
    return Markup(table(head, rows, words=(0, 3, 5)) + paragraph(caption, "soft small"))


def _estimate(change: ReadingChange) -> RatioMark:
    kind = _KINDS.get(change.verdict or "", "even")
    return RatioMark(value=change.ratio, low=change.low, high=change.high, kind=kind)


_MOST_REPEATS = 5
"""Lines a side: more cannot be told apart."""

_GROUPS = 200
"""Points of a line."""


def losses(sides: Sequence[Sequence[LossCurve]], parity: Parity, names: Sequence[str]) -> Markup:
    """The curves of the repeats of each side, at equal work; or why they are not compared."""
    unit = parity.unit
    lines = [] if unit is None else [[line(points, unit) for points in side] for side in sides]
    drawn = [point for side in lines for points in side for point in points]
    if unit is None or not drawn:
        return not_measured(parity.why)
    frame = _frame(drawn)
    marks = list(_range(frame, parity))
    for colour, side in zip(SIDES, lines, strict=True):
        marks += [
            curve([(frame.x(x), frame.y(y)) for x, y in points], f"s{colour}")
            for points in side[:_MOST_REPEATS]
        ]
    picture = frame.picture("losses of both runs", marks, names=(unit, "loss"))
    shaded = " The shade is the range that was compared." if parity.work is not None else ""
    caption = f"Mean over neighbouring steps, at equal {unit}.{shaded}"
    named = keys((name, f"k{colour}") for name, colour in zip(names, SIDES, strict=True))
    return Markup(picture + named + paragraph(caption, "soft small"))


def _frame(drawn: Sequence[Point]) -> Frame:
    works, values = zip(*drawn, strict=True)
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.5
    return Frame(
        across=Axis(low=min(works), high=max(works), say=short),
        up=Axis(low=low - margin, high=high + margin, say=short),
        height=220,
    )


def _range(frame: Frame, parity: Parity) -> Iterator[Markup]:
    if parity.since is None or parity.work is None:
        return
    left, right = frame.x(parity.since), frame.x(parity.work)
    yield box((left, 0.0), (right - left, frame.height), "range", parity.why)


def line(losses: LossCurve, unit: Unit) -> list[tuple[float, float]]:
    """Work done and mean loss of each group; only where there is a loss."""
    if unit not in losses.work:
        return []
    work = losses.work[unit]
    finite = np.isfinite(losses.loss)
    if not finite.any() or work[-1] <= work[0]:
        return []
    loss, done = losses.loss[finite], work[finite]
    places = ((done - work[0]) / (work[-1] - work[0]) * (_GROUPS - 1)).astype(np.int64)
    numbers = np.bincount(places, minlength=_GROUPS)
    there = np.flatnonzero(numbers)
    means = np.bincount(places, weights=loss, minlength=_GROUPS)[there] / numbers[there]
    at = np.bincount(places, weights=done, minlength=_GROUPS)[there] / numbers[there]
    return list(zip(at.tolist(), means.tolist(), strict=True))
