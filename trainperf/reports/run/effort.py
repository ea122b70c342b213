"""Return on effort in words: six answers for each finding, of `trainperf explain --run`.

How much, how long, what return, anything better, where is the ceiling, how far is it: the rows
`gain`, `effort`, `return`, `better`, `ceiling` and `how far` of a finding.
"""

from collections.abc import Sequence

from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Basis, Decision, Finding
from trainperf.core.formatting.units import at_most, duration, share, times
from trainperf.core.readings import STEP_MEAN_S
from trainperf.reports.layout.finding_view import FindingRow


UNKNOWN_PART = "not known"

_KNOWN_BY: dict[Basis, str] = {"measured": "as tried", "modelled": "by the law of the step"}


def answers(summary: Summary, finding: Finding | None) -> list[FindingRow]:
    """The six answers for a finding; one row that says why where it asks for no change."""
    if finding is None:
        return [FindingRow("in this run", "not found")]
    row = next((each for each in summary.decisions if each.part == finding.id), None)
    if row is None:
        return [FindingRow("in this run", "nothing to change")]
    step_s = summary.value(STEP_MEAN_S)
    before_s = sum(summary.run.before_s.values()) if row.scope == "script" else 0.0
    scope_s = step_s if row.scope == "step" else summary.run.fit_s + before_s
    urgent = ", and first all the same: it is urgent" if row.urgent else ""
    gain, ceiling = f"{UNKNOWN_PART}{urgent}", f"{UNKNOWN_PART}: no bound for this change"
    if row.gain is not None:
        spent = f": {duration(scope_s)} → {duration(scope_s / row.gain)}" if scope_s else ""
        gain = f"about {times(row.gain)} for the {row.scope}{spent}, {_KNOWN_BY[row.basis]}"
    if row.ceiling is not None:
        least = f", {duration(scope_s / row.ceiling)}" if scope_s else ""
        ceiling = f"{at_most(row.ceiling)}{least}"
    texts = {
        "gain": gain,
        "effort": f"{finding.effort}, counted as {row.days:.2g} days",
        "return": _return(row),
        "better": _better(row, summary.decisions),
        "ceiling": ceiling,
        "how far": _far(row, summary),
    }
    return [FindingRow(label, text) for label, text in texts.items()]


def _return(row: Decision) -> str:
    if row.saved_fraction is None or row.return_per_day is None:
        return UNKNOWN_PART
    whole = "script" if row.scope == "script" else "fit"
    per_day = f"{share(row.return_per_day)} per day of work"
    return f"saves {share(row.saved_fraction)} of the {whole}, {per_day}"


def _better(row: Decision, rows: Sequence[Decision]) -> str:
    """Those that return more."""
    if row.return_per_day is None:
        return f"{UNKNOWN_PART}: its own return is not"
    returns = {each.part: each.return_per_day or 0.0 for each in rows}
    more = [f"{part} ({share(r)})" for part, r in returns.items() if r > row.return_per_day]
    return f"{', '.join(more)} per day" if more else "nothing returns more per day"


def _far(row: Decision, summary: Summary) -> str:
    """The ceiling by this change, and the floor of the step whatever is changed."""
    way = f"{UNKNOWN_PART} by this change"
    if row.gain is not None and row.ceiling is not None and row.ceiling > 1:
        reached = (1 - 1 / row.gain) / (1 - 1 / row.ceiling)
        way = f"this change saves {share(max(0.0, reached))} of what the ceiling allows"
    step = None if summary.light is None else summary.light.phases[0]
    if step is None or step.over is None:
        return f"{way}; speed of light: {UNKNOWN_PART} without an audit"
    return f"{way}; the step takes {times(step.over)} its speed of light, {duration(step.floor_s)}"
