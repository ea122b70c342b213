"""Return on effort in words: six answers for each finding, of `trainperf explain --run`.

How much, how long, what return, anything better, where is the ceiling, how far is it: the rows
`gain`, `effort`, `return`, `better`, `ceiling` and `how far` of a finding.
"""

from collections.abc import Sequence

from trainperf.core.findings import DAYS, Finding, saving
from trainperf.core.formatting.units import at_most, share
from trainperf.reports.layout.finding_view import FindingRow, gain


UNKNOWN_PART = "not known"


def answers(finding: Finding | None, findings: Sequence[Finding]) -> list[FindingRow]:
    """The six answers for a finding; one row that says why where it asks for no change.

    Args:
        finding: The finding; `None` where the run has it not.
        findings: All of the run, for what returns more.
    """
    if finding is None:
        return [FindingRow("in this run", "not found")]
    if finding.fraction == 0.0 and not finding.urgent:
        return [FindingRow("in this run", "nothing to change")]
    urgent = ", and first all the same: it is urgent" if finding.urgent else ""
    most, saved, own = finding.gain_upper_bound, finding.saved_fraction, finding.return_per_day
    returned = better = reached = ""
    if saved is not None and own is not None:
        whole = "script" if finding.scope == "script" else "fit"
        returned = f"saves {share(saved)} of the {whole}, {share(own)} per day of work"
        others = {each.id: each.return_per_day or 0.0 for each in findings}
        more = [f"{name} ({share(part)})" for name, part in others.items() if part > own]
        better = f"{', '.join(more)} per day" if more else "nothing returns more per day"
    if finding.gain is not None and most is not None and most > 1:
        part = max(0.0, saving(finding.gain) / saving(most))
        reached = f"this change saves {share(part)} of what the ceiling allows"
    texts = {
        "gain": f"{gain(finding) or UNKNOWN_PART}{urgent}",
        "effort": f"{finding.effort}, counted as {DAYS[finding.effort]:.2g} days",
        "return": returned,
        "better": better,
        "ceiling": "" if most is None else at_most(most),
        "how far": reached,
    }
    return [FindingRow(label, text or UNKNOWN_PART) for label, text in texts.items()]
