"""The report as markdown: for TensorBoard's text tab, issues and pull requests."""

from collections.abc import Iterable, Sequence

from trainperf.reports.headline import bound, headline
from trainperf.reports.safe import markdown as safe
from trainperf.reports.view import device, facts, ledger, not_there, phase_rows, progress, remarks
from trainperf.results import Finding, Summary
from trainperf.rules.straggler import said as lateness
from trainperf.units import Scale, duration, fine_share, plural


_NOTE = 3
"""Place of the column that is words and not numbers."""


def render(summary: Summary) -> str:
    """The whole report.  Names from users are escaped: none can open markup, HTML or a cell."""
    blocks = [
        f"### trainperf · {safe(summary.run.name)}",
        f"**{safe(headline(summary))}**",
        safe(_run(summary)),
        _phases(summary),
        _bullets(f"{safe(fact.name)}: {safe(fact.said)}" for fact in facts(summary)),
        _bullets(_ranks(summary)),
        _ledger(summary),
        _findings(summary.findings),
        _bullets(f"note: {safe(warning)}" for warning in (*summary.warnings, *remarks(summary))),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _run(summary: Summary) -> str:
    ranks = plural(len(summary.run.ranks), "rank")
    return f"{ranks} · {device(summary)} · {progress(summary)}"


def _phases(summary: Summary) -> str:
    rows = phase_rows(summary)
    if not rows:
        return ""
    scale = Scale.fine(sum(row.seconds for row in rows))
    cells = [
        (row.label, absent, "", "")
        if (absent := not_there(summary, row))
        else (row.label, scale.say(row.seconds), fine_share(row.fraction), safe(row.note))
        for row in rows
    ]
    return _table(("phase", "time a step", "share", "note"), cells)


def _ranks(summary: Summary) -> list[str]:
    return [
        f"skew: {safe(lateness(point))}"
        for point in summary.synchronisation
        if point.straggler is not None
    ]


def _ledger(summary: Summary) -> str:
    cells = [(safe(name), duration(spent_s)) for name, spent_s in ledger(summary) if spent_s]
    total = duration(summary.run.fit_s)
    return _table(("the fit", total), cells) if cells else ""


def _findings(findings: Sequence[Finding]) -> str:
    said = []
    for place, finding in enumerate(findings, start=1):
        evidence = "; ".join(safe(number) for number in finding.evidence)
        said.append(
            f"{place}. **{safe(finding.title)}**{safe(bound(finding))}  \n"
            f"   {evidence}  \n"
            f"   next: {safe(finding.action)}"
        )
    return "\n".join(said)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---:" if 0 < place < _NOTE else "---" for place in range(len(head))]
    lines = [head, rule, *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
