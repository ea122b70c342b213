"""Return on effort in words: the decision table, and six answers for each finding.

How much, how long, what return, anything better, where is the ceiling, how far is it: the rows
`gain`, `effort`, `return`, `better`, `ceiling` and `how far` of a finding.
"""

from collections.abc import Iterator, Sequence

from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import DAYS, Basis, Decision, Finding
from trainperf.core.formatting.table import Table, or_unknown
from trainperf.core.formatting.units import at_most, duration, plural, share, times
from trainperf.core.readings import STEP_MEAN_S
from trainperf.reports.layout.finding_view import FindingRow


GAIN, EFFORT, RETURN = "gain", "effort", "return"
BETTER, CEILING, FAR = "better", "ceiling", "how far"

TITLE = "What to do first: return on effort"

UNKNOWN_PART = "not known"

_BASIS: dict[Basis, str] = {
    "estimate": "your estimate",
    "measured": "tried",
    "modelled": "the law of the step",
}
_CLEARLY = 0.05
"""By how much more something must return to be better: estimates are no finer than that."""

_MOST_BETTER = 3
"""Parts that return more which are named."""

_DEFAULTS = ", ".join(f"{effort} {days:.2g}" for effort, days in DAYS.items())
_GAIN = (
    "about: how many times faster the step, or the fit, probably gets by it: tried, by your "
    "estimate, or by the law of the step (docs/concepts/how-it-decides.md)"
)
_PER_DAY = (
    f"days: of work, 8 hours each ({_DEFAULTS}); per day: share of the fit that is saved over the "
    "days, to compare changes by"
)
_NO_SUM = "gains do not add up: each change alters the other shares"
_OF_YOUR_OWN = (
    "estimates of your own: trainperf report RUN --write-effort effort.toml, edit it, then "
    "trainperf report RUN --effort effort.toml"
)


def _days(days: float) -> str:
    """E.g. `0.12`, `3`, `20`."""
    return f"{days:.2g}" if days < 1 else f"{days:.3g}"


def of_effort(summary: Summary) -> list[Table]:
    """The decision table; empty where nothing asks for a change."""
    rows = summary.decisions
    if not rows:
        return []
    whole = any(row.scope == "fit" and row.fraction is not None for row in rows)
    edited = any(row.basis == "estimate" or row.days_estimated for row in rows)
    notes = [_GAIN, _PER_DAY, _NO_SUM, *(["* of the fit, not of a step"] if whole else [])]
    notes += [] if edited else [_OF_YOUR_OWN]
    head = ("part", "share", "days", "about", "at most", "per day", "by")
    return [
        Table(
            title=TITLE,
            head=head,
            rows=tuple(map(_row, rows)),
            end_words=1,
            notes=tuple(notes),
        )
    ]


def _row(row: Decision) -> tuple[str, ...]:
    star = "*" if row.scope == "fit" and row.fraction is not None else ""
    return (
        row.part,
        or_unknown(row.fraction, share) + star,
        _days(row.days),
        or_unknown(row.gain, times),
        or_unknown(row.ceiling, times),
        or_unknown(row.return_per_day, share),
        ", ".join(_by(row)),
    )


def _by(row: Decision) -> Iterator[str]:
    """What the row stands on."""
    if row.urgent:
        yield "urgent: first"
    if row.gain is not None or row.basis == "measured":
        yield _BASIS[row.basis]
    if row.days_estimated and row.basis != "estimate":
        yield "your days"


def answers(summary: Summary, finding: Finding) -> list[FindingRow]:
    """The six answers for a finding; empty where it asks for no change."""
    row = next((each for each in summary.decisions if each.part == finding.id), None)
    if row is None:
        return []
    texts = {
        GAIN: _gain(row, summary),
        EFFORT: _effort(row, finding),
        RETURN: _return(row),
        BETTER: _better(row, summary.decisions),
        CEILING: _ceiling(row, summary),
        FAR: _far(row, summary),
    }
    return [FindingRow(label, text) for label, text in texts.items()]


def _scope_s(row: Decision, summary: Summary) -> float | None:
    """Time of what the gain is of: the mean steady step, or the fit."""
    return summary.value(STEP_MEAN_S) if row.scope == "step" else summary.run.fit_s


def _gain(row: Decision, summary: Summary) -> str:
    """How much?"""
    if row.gain is None and row.urgent:
        return f"{UNKNOWN_PART}, and first all the same: it is urgent"
    if row.gain is None:
        return f"{UNKNOWN_PART}: {'the loss differs' if row.basis == 'measured' else 'no share'}"
    scope_s, by = _scope_s(row, summary), _BASIS[row.basis]
    spent = f": {duration(scope_s)} → {duration(scope_s / row.gain)}" if scope_s else ""
    return f"about {times(row.gain)} for the {row.scope}{spent}, by {by}"


def _effort(row: Decision, finding: Finding) -> str:
    """How long?"""
    if row.days_estimated:
        return f"{_days(row.days)} days by your estimate"
    return f"{finding.effort}, counted as {_days(row.days)} days"


def _return(row: Decision) -> str:
    """What return?"""
    if row.saved_fraction is None or row.return_per_day is None:
        return UNKNOWN_PART
    per_day = f"{share(row.return_per_day)} per day of work"
    return f"saves {share(row.saved_fraction)} of the fit, {per_day}"


def _better(row: Decision, rows: Sequence[Decision]) -> str:
    """Anything better?"""
    if row.return_per_day is None:
        return f"{UNKNOWN_PART}: its own return is not"
    least = row.return_per_day + _CLEARLY * abs(row.return_per_day)
    more = [each for each in rows if (each.return_per_day or 0.0) > least]
    if not more:
        return "nothing returns more per day"
    named = [f"{each.part} ({share(each.return_per_day or 0.0)})" for each in more[:_MOST_BETTER]]
    others = plural(len(more) - _MOST_BETTER, "other") if len(more) > _MOST_BETTER else ""
    return f"{', '.join(filter(None, (*named, others)))} per day"


def _ceiling(row: Decision, summary: Summary) -> str:
    """Where is the ceiling?"""
    if row.ceiling is None:
        return f"{UNKNOWN_PART}: no bound for this change"
    scope_s = _scope_s(row, summary)
    spent = f", {duration(scope_s / row.ceiling)}" if scope_s else ""
    return f"{at_most(row.ceiling)}{spent}"


def _far(row: Decision, summary: Summary) -> str:
    """How far is it: the ceiling by this change, and the floor of the step whatever is changed."""
    way = f"{UNKNOWN_PART} by this change"
    if row.gain is not None and row.ceiling is not None and row.ceiling > 1:
        reached = (1 - 1 / row.gain) / (1 - 1 / row.ceiling)
        way = f"this change saves {share(max(0.0, reached))} of what the ceiling allows"
    step = None if summary.light is None else summary.light.phases[0]
    if step is None or step.over is None:
        return f"{way}; speed of light: {UNKNOWN_PART} without an audit"
    return f"{way}; the step takes {times(step.over)} its speed of light, {duration(step.floor_s)}"
