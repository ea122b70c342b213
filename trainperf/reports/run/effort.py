"""Return on effort in words: six answers for each finding, of `trainperf explain --run`.

How much, how long, what return, anything better, where is the ceiling, how far is it: the rows
`gain`, `effort`, `return`, `better`, `ceiling` and `how far` of a finding.
"""

from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import DAYS, Finding, saving
from trainperf.core.formatting.units import at_most, duration, share, times
from trainperf.core.readings import STEP_MEAN_S
from trainperf.reports.layout.finding_view import FindingRow


UNKNOWN_PART = "not known"


def answers(summary: Summary, finding: Finding | None) -> list[FindingRow]:
    """The six answers for a finding; one row that says why where it asks for no change."""
    if finding is None:
        return [FindingRow("in this run", "not found")]
    if finding.fraction == 0.0 and not finding.urgent:
        return [FindingRow("in this run", "nothing to change")]
    step_s = summary.value(STEP_MEAN_S)
    before_s = sum(summary.run.before_s.values()) if finding.scope == "script" else 0.0
    scope_s = step_s if finding.scope == "step" else summary.run.fit_s + before_s
    urgent = ", and first all the same: it is urgent" if finding.urgent else ""
    gain, ceiling = f"{UNKNOWN_PART}{urgent}", f"{UNKNOWN_PART}: no bound for this change"
    if finding.gain is not None:
        spent = f": {duration(scope_s)} → {duration(scope_s / finding.gain)}" if scope_s else ""
        known_by = "as tried" if finding.measured_gain else "by the law of the step"
        gain = f"about {times(finding.gain)} for the {finding.scope}{spent}, {known_by}"
    most = finding.gain_upper_bound
    if most is not None:
        ceiling = at_most(most) + (f", {duration(scope_s / most)}" if scope_s else "")
    texts = {
        "gain": gain,
        "effort": f"{finding.effort}, counted as {DAYS[finding.effort]:.2g} days",
        "return": _return(finding),
        "better": _better(finding, summary),
        "ceiling": ceiling,
        "how far": _far(finding, summary),
    }
    return [FindingRow(label, text) for label, text in texts.items()]


def _return(finding: Finding) -> str:
    if finding.saved_fraction is None or finding.return_per_day is None:
        return UNKNOWN_PART
    whole = "script" if finding.scope == "script" else "fit"
    per_day = f"{share(finding.return_per_day)} per day of work"
    return f"saves {share(finding.saved_fraction)} of the {whole}, {per_day}"


def _better(finding: Finding, summary: Summary) -> str:
    """Those that return more."""
    own = finding.return_per_day
    if own is None:
        return f"{UNKNOWN_PART}: its own return is not"
    returns = {each.id: each.return_per_day or 0.0 for each in summary.findings}
    more = [f"{part} ({share(r)})" for part, r in returns.items() if r > own]
    return f"{', '.join(more)} per day" if more else "nothing returns more per day"


def _far(finding: Finding, summary: Summary) -> str:
    """The ceiling by this change, and the floor of the step whatever is changed."""
    way, most = f"{UNKNOWN_PART} by this change", finding.gain_upper_bound
    if finding.gain is not None and most is not None and most > 1:
        reached = saving(finding.gain) / saving(most)
        way = f"this change saves {share(max(0.0, reached))} of what the ceiling allows"
    step = None if summary.light is None else summary.light.phases[0]
    if step is None or step.over is None:
        return f"{way}; speed of light: {UNKNOWN_PART} without an audit"
    return f"{way}; the step takes {times(step.over)} its speed of light, {duration(step.floor_s)}"
