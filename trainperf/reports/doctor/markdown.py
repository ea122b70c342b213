"""The checkup of a run as markdown: for issues and pull requests."""

from trainperf.analysis.doctor import Checked, Checkup
from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.table import Table, markdown_table
from trainperf.reports.doctor.text import IN_WORDS, answer


def render(checkup: Checkup, name: str) -> str:
    """A heading, the answer, and one row per check."""
    rows = tuple(_row(place, check) for place, check in enumerate(checkup.checks, start=1))
    head = ("", "check", "", "evidence", "what to do")
    table = Table(head=head, rows=rows, words=0, end_words=4)
    blocks = (f"### trainperf doctor · {safe(name)}", f"**{safe(answer(checkup))}**")
    return "\n\n".join((*blocks, markdown_table(table))) + "\n"


def _row(place: int, check: Checked) -> tuple[str, ...]:
    status = IN_WORDS[check.status]
    return (
        str(place),
        check.title.replace("`", ""),
        status.upper() if check.status == "fail" else status,
        "; ".join(check.evidence),
        check.action,
    )
