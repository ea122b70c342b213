"""A finding as lines of text and of markdown, whatever report it stands in."""

from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.wrap import wrapped
from trainperf.reports.layout.finding_view import CONFIRM, FindingView


_LABEL = len(CONFIRM) + 2


def finding_text(place: int, finding: FindingView, width: int) -> tuple[list[str], list[str]]:
    """The title after its number; then the evidence, and a line for every label."""
    number = f"{place}. "
    hang = " " * len(number)
    lines = wrapped("; ".join(finding.evidence), width, hang) if finding.evidence else []
    for row in finding.rows:
        lines += wrapped(row.text, width, f"{hang}{row.label:<{_LABEL}}")
    return wrapped(finding.headline, width, number), lines


def finding_markdown(place: int, finding: FindingView) -> str:
    """An item of a numbered list."""
    gain = f": {safe(finding.gain)}" if finding.gain else ""
    lines = [f"**{safe(finding.title)}**{gain}"]
    if finding.evidence:
        lines.append(safe("; ".join(finding.evidence)))
    lines += [f"{row.label}: {safe(row.text)}" for row in finding.rows]
    return f"{place}. " + "  \n   ".join(lines)
