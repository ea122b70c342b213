"""The checkup of a run as markdown: for issues and pull requests."""

from trainperf.analysis.doctor import Checked, Checkup
from trainperf.core.formatting.escape import markdown as safe
from trainperf.reports.doctor.text import IN_WORDS, answer


def render(checkup: Checkup, name: str) -> str:
    """A heading, the answer, and one row per check."""
    rows = [_row(place, check) for place, check in enumerate(checkup.checks, start=1)]
    head = ["| | check | | evidence | what to do |", "| ---: | --- | --- | --- | --- |"]
    blocks = (f"### trainperf doctor · {safe(name)}", f"**{safe(answer(checkup))}**")
    return "\n\n".join((*blocks, "\n".join([*head, *rows]))) + "\n"


def _row(place: int, check: Checked) -> str:
    status = IN_WORDS[check.status]
    cells = (
        str(place),
        safe(check.title.replace("`", "")),
        f"**{status}**" if check.status == "fail" else status,
        "; ".join(map(safe, check.evidence)),
        safe(check.action),
    )
    return f"| {' | '.join(cells)} |"
