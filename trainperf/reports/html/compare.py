"""The page of a comparison: the verdict first, then what it stands on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainperf.comparison.compared_run import ComparedRun, read_run
from trainperf.comparison.results import Comparison, TraceDifference
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
from trainperf.core.formatting.html.svg import bar, keys
from trainperf.core.formatting.units import duration, plural, words
from trainperf.core.phases import PHASES
from trainperf.reports.comparison.rows import Row, answer, causes, notes, setting, speed
from trainperf.reports.html.components import missing, not_measured
from trainperf.reports.html.forest import forest, reach, track
from trainperf.reports.html.losses import losses
from trainperf.reports.html.step_times import beside
from trainperf.reports.run.rows import phase_rows
from trainperf.reports.series.step_times import WallsFold, pooled


_GOOD = {"faster": "good", "slower": "bad", "loss differs": "bad"}
"""Classes of the style by verdict; the others are neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Those of one run, read once: what is judged, and what is drawn of their steps."""

    runs: Sequence[ComparedRun]
    walls: Sequence[WallsFold]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two sides and what was found."""

    comparison: Comparison
    before: Repeats
    after: Repeats

    @property
    def names(self) -> tuple[str, str]:
        """For the keys of figures: two runs may have one name."""
        found = self.comparison
        return f"before: {found.before.name}", f"after: {found.after.name}"


def read(*paths: Path) -> Repeats:
    """Read the repeats of one run.

    Raises:
        RunError: One of them is no run directory.
    """
    walls = [WallsFold() for _ in paths]
    runs = [read_run(path, observers=[seen]) for path, seen in zip(paths, walls, strict=True)]
    return Repeats(runs=runs, walls=walls)


def render(pairs: Sequence[Pair]) -> str:
    """The whole page; of several comparisons one below the other."""
    title = " · ".join(dict.fromkeys(pair.comparison.after.name for pair in pairs))
    several = [_overview(pairs)] if len(pairs) > 1 else []
    parts = [part for pair in pairs for part in _one(pair)]
    return page(f"{title} · trainperf compare", *several, *parts)


def _overview(pairs: Sequence[Pair]) -> Markup:
    rows = [
        (
            one.after.name,
            tag("span", text(one.verdict), kind=_GOOD.get(one.verdict, "soft")),
            one.reason if one.speedup is None else speed(one.speedup),
        )
        for one in (pair.comparison for pair in pairs)
    ]
    before = pairs[0].comparison.before.name
    return tag(
        "header",
        paragraph("trainperf compare", "soft small"),
        tag("h1", text(f"{plural(len(pairs), 'run')} against {before}")),
        table(("run", "verdict", "\u00a0"), rows, words=(0, 1, 2)),
    )


def _one(pair: Pair) -> list[Markup]:
    found = pair.comparison
    sides = (pair.before, pair.after)
    curves = [[run.losses for run in side.runs] for side in sides]
    steps = beside([pooled(side.walls) for side in sides], pair.names)
    return [
        _verdict(pair),
        section("Ratios", forest(found), _not_compared(found)),
        section("Where a step goes", _phases(pair)),
        section(
            "How long the steps took",
            steps or not_measured("one of the runs has no steady state"),
        ),
        section("What is different", _differences(found)),
        section("Loss at equal work", _parity(found), losses(curves, found.parity, pair.names)),
        section("What the traces say", _explained(found)),
        _foot(found),
    ]


def _verdict(pair: Pair) -> Markup:
    found = pair.comparison
    kind = _GOOD.get(found.verdict, "soft")
    return tag(
        "header",
        paragraph("trainperf compare", "soft small"),
        tag("h1", text(answer(found)), kind=kind),
        bullets(notes(found)),
    )


def _not_compared(found: Comparison) -> Markup:
    """Readings that only one side has."""
    return missing(
        [
            (one.name, f"only {'after' if one.before is None else 'before'}: {one.reason or ''}")
            for one in found.readings
            if one.before is None or one.after is None
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
        said = f"{name}, {duration(step_s)}" if rows else f"{name}: no step was recorded"
        drawn.append(paragraph(said, "soft small") + bar(parts, name, whole=longest_s))
    there = {row.phase for rows in every for row in rows if row.seconds}
    named = ((words(phase.label), f"b{phase}") for phase in PHASES if phase in there)
    return Markup("".join(drawn) + keys(named))


def _differences(found: Comparison) -> Markup:
    if not found.differences:
        return paragraph("No difference in the recorded settings.", "soft")
    rows = [
        (one.name, setting(one.before), setting(one.after), one.change) for one in found.differences
    ]
    count = len(found.changes)
    several = f"{plural(count, 'change')}: the gain cannot be attributed to any one of them."
    said = paragraph(several, "warn") if count > 1 else Markup("")
    return Markup(said + table(("setting", "before", "after", "belongs to"), rows, words=range(4)))


def _parity(found: Comparison) -> Markup:
    kinds = {"same": "good", "differs": "bad", "unknown": "soft"}
    said = {"same": "equal", "differs": "different", "unknown": "undecided"}
    verdict = found.parity.verdict
    return tag(
        "p", tag("b", text(f"{said[verdict]}: "), kind=kinds[verdict]), text(found.parity.why)
    )


def _explained(found: Comparison) -> Markup:
    """What a step spends other time on, the largest difference first."""
    if not found.explained:
        return not_measured("a trace of steps on both sides is needed; ScheduledProfiler makes one")
    largest_s = max(abs(one.after_s - one.before_s) for one in found.explained)
    said = causes(found)
    rows = [_cause(one, how, largest_s) for one, how in zip(found.explained, said, strict=True)]
    head = ("per step", "before", "after", "\u00a0", "difference", "\u00a0")
    return table(head, rows, words=(0, 3, 5))


def _cause(one: TraceDifference, said: Row, largest_s: float) -> tuple[str | Markup, ...]:
    more_s = one.after_s - one.before_s
    end = 0.5 + (more_s / largest_s / 2 if largest_s else 0.0)
    mark = reach(0.5, end, "bad") if more_s > 0 else reach(end, 0.5, "good")
    drawn = track([mark], 0.5)
    return (said.label, said.before, said.after, drawn, said.ratio, said.verdict)


def _foot(found: Comparison) -> Markup:
    paths = (*found.before.paths, *found.after.paths)
    return tag("footer", *(paragraph(path) for path in paths))
