"""Trials on the page of a run: each change and each ceiling with its interval, on one axis."""

from collections.abc import Sequence

from trainperf.core.artifacts.trials import MEASURED, Trials, TrialVerdict
from trainperf.core.formatting.html.figures import Axis
from trainperf.core.formatting.html.markup import Markup, bullets, paragraph, tag, text
from trainperf.reports.html.components import heading, labelled
from trainperf.reports.html.forest import RatioMark, drawn_on, ratio_axis, ticks
from trainperf.reports.layout.finding_view import NEXT, FindingRow
from trainperf.reports.layout.trials_view import (
    AppliedLine,
    TrialRow,
    TrialsView,
    trials_view,
)


FARTHEST = 10.0
"""Speed-ups beyond this are drawn at the edge."""

_KINDS: dict[TrialVerdict, str] = {"faster": "good", "slower": "bad", "loss differs": "doubt"}
"""Classes of the style by verdict; the others are even."""

_CAPTION = (
    "Bar: how many times as fast, from 1×, the training as it is; line across its end: 95 % CI; "
    f"beyond {FARTHEST:g}× at the edge. A click on a line of code selects it."
)
_OF_CEILINGS = (
    "No changes to make: each leaves work out, so no change to that work brings more than this."
)


def tried(trials: Trials | None, *, running: bool) -> Markup:
    """Changes and sets of them by what they bring, ceilings apart; empty if nothing was tried."""
    if trials is None:
        return Markup("")
    view = trials_view(trials, running=running)
    changes = sorted((*view.sets, *view.changes), key=_by_gain)
    axis = ratio_axis([_estimate(row, "") for row in (*changes, *view.ceilings)], FARTHEST)
    return Markup(
        paragraph(view.answer)
        + _drawn(changes, axis)
        + paragraph(_CAPTION if changes else "", "soft small")
        + _ceilings(view, axis)
        + _folded("Not applicable", view.unavailable)
        + tag("div", bullets(view.notes), kind="soft small")
        + labelled([FindingRow(NEXT, view.next)])
    )


def _ceilings(view: TrialsView, axis: Axis) -> Markup:
    if not view.ceilings:
        return Markup("")
    words = paragraph(_OF_CEILINGS, "soft small")
    return Markup(heading("Ceilings") + _drawn(view.ceilings, axis, of="most") + words)


def _by_gain(row: TrialRow) -> tuple[bool, float]:
    return row.kind not in MEASURED, -(row.value or 0.0)


def _drawn(rows: Sequence[TrialRow], axis: Axis, of: str = "") -> Markup:
    """A line per trial: words to the left, the bar, numbers to the right."""
    if not rows:
        return Markup("")
    scale = tag("div", tag("div"), ticks(axis), kind="trial")
    return tag("div", scale, *(_row(row, axis, of) for row in rows), kind="trials")


def _row(row: TrialRow, axis: Axis, of: str) -> Markup:
    kind = "" if of else _KINDS.get(row.kind, "even")
    speed = [tag("b", text(row.speedup)), text(f" {row.interval}")] if row.speedup else []
    return tag(
        "div",
        _what(row),
        drawn_on(axis, _estimate(row, of), from_one=True),
        tag("div", *speed, kind="speed"),
        tag("div", text(f"{row.mark} {row.verdict}"), kind=kind),
        kind="trial",
    )


def _what(row: TrialRow) -> Markup:
    """Its title, the lines to write, and what to know about it."""
    loss = f"loss {row.loss}" if row.loss and row.loss not in row.note else ""
    note = paragraph("; ".join(filter(None, (row.note, loss))), "soft small")
    return tag("div", text(row.title), *map(_line, row.lines), note, kind="what")


def _line(line: AppliedLine) -> Markup:
    where = Markup(f' <span class="soft">({text(line.where)})</span>') if line.where else ""
    return tag("p", tag("code", text(line.line)), Markup(where), kind="small")


def _estimate(row: TrialRow, of: str) -> RatioMark:
    kind = of or _KINDS.get(row.kind, "even")
    return RatioMark(value=row.value, low=row.low, high=row.high, kind=kind)


def _folded(name: str, reasons: Sequence[str]) -> Markup:
    """A list that is shut until somebody opens it."""
    if not reasons:
        return Markup("")
    summary = tag("summary", text(f"{name}: {len(reasons)}"))
    return tag("details", summary, bullets(reasons), kind="soft small")
