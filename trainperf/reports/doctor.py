"""The checkup of a run in words: what failed first, then check by check."""

from collections.abc import Iterator

from rich.text import Text

from trainperf.analysis.doctor import Checkup, Outcome, Status
from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.table import Table, markdown_table
from trainperf.core.formatting.wrap import WIDTH, words_of
from trainperf.reports.layout.finding_view import NEXT
from trainperf.reports.layout.terminal import flow


_LABELS: dict[Status, str] = {
    "pass": "pass",
    "fail": "FAIL",
    "not_applicable": "n/a",
    "unknown": "?",
}
"""In the margin."""

_OUTCOMES: dict[Status, str] = {
    "pass": "passed",
    "fail": "failed",
    "not_applicable": "not applicable",
    "unknown": "unknown",
}
_STYLES: dict[Status, str] = {
    "pass": "green",
    "fail": "bold red",
    "not_applicable": "dim",
    "unknown": "yellow",
}
_MARGIN = 10


def checkup_text(checkup: Checkup, name: str) -> str:
    """The checkup as plain text, `WIDTH` columns wide."""
    return "".join(line.plain.rstrip() + "\n" for line in lines(checkup, name))


def lines(checkup: Checkup, name: str, width: int = WIDTH) -> list[Text]:
    """Line by line, none wider than *width*; styles are Rich's.

    Args:
        checkup: The outcomes.
        name: What a person calls the run.
        width: Columns.
    """
    out = [Text(f"trainperf doctor · {plain(name)}", style="bold cyan"), Text()]
    out += [Text("  ").append_text(line) for line in flow(words_of(answer(checkup)), width - 2)]
    out.append(Text())
    for place, check in enumerate(checkup.checks, start=1):
        out += _check(place, check, width)
    for line in out:
        line.truncate(width, overflow="ellipsis")
    return out


def answer(checkup: Checkup) -> str:
    """How many checks ended how, and which failed."""
    counted = [
        f"{checkup.number(status)} {_OUTCOMES[status]}"
        for status in ("pass", "fail", "not_applicable", "unknown")
        if checkup.number(status) or status == "fail"
    ]
    failed = ", ".join(check.id for check in checkup.checks if check.status == "fail")
    return f"{', '.join(counted)} of {len(checkup.checks)} checks" + (
        f". Failed: {failed}." if failed else "."
    )


def _check(place: int, check: Outcome, width: int) -> Iterator[Text]:
    head = Text(f"  {_LABELS[check.status]:<5}{place:>2} ", style=_STYLES[check.status])
    yield head.append(plain(check.title.replace("`", "")), style=_STYLES[check.status])
    inner = width - _MARGIN
    action = f"{NEXT}: {check.action}" if check.action else ""
    for sentence, style in ((" · ".join(check.evidence), "default"), (action, "bold")):
        for line in flow(words_of(sentence), inner):
            yield Text(" " * _MARGIN).append(line.plain, style=style)


def checkup_markdown(checkup: Checkup, name: str) -> str:
    """For issues and pull requests: a heading, the answer, and one row per check."""
    rows = tuple(_row(place, check) for place, check in enumerate(checkup.checks, start=1))
    head = ("", "check", "", "evidence", NEXT)
    table = Table(head=head, rows=rows, words=0, end_words=4)
    blocks = (f"### trainperf doctor · {safe(name)}", f"**{safe(answer(checkup))}**")
    return "\n\n".join((*blocks, markdown_table(table))) + "\n"


def _row(place: int, check: Outcome) -> tuple[str, ...]:
    status = _OUTCOMES[check.status]
    return (
        str(place),
        check.title.replace("`", ""),
        status.upper() if check.status == "fail" else status,
        "; ".join(check.evidence),
        check.action,
    )
