"""What does a reader see first?  The answer, the numbers behind it, and what to change."""

from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.html.markup import Markup, bullets, paragraph, table, tag, text
from trainperf.core.formatting.html.svg import bar
from trainperf.core.formatting.units import Scale, duration, fine_share, plural
from trainperf.reports.html.components import facts, meter
from trainperf.reports.layout.finding_view import (
    NEXT,
    NO_FINDING,
    WHERE,
    FindingRow,
    FindingView,
    finding_view,
)
from trainperf.reports.run.headline import headline
from trainperf.reports.run.rows import (
    PhaseRow,
    device,
    ledger,
    not_there,
    phase_rows,
    progress,
    remarks,
)
from trainperf.reports.run.rows import facts as known_facts


_SLOTS = (2, 4, 1, 6, 5, 0, 3, 7)
"""Colours of steps and gaps: neighbours differ."""


def first(summary: Summary) -> Markup:
    """Name, answer, how far it came, single numbers, and what must be known beside them."""
    run = summary.run
    about = f"{plural(len(run.ranks), 'rank')} · {device(summary)} · {progress(summary)}"
    # Seconds and the zone, which is UTC, say nothing to a reader.
    when = f"{run.name} · {run.started_at[:16].replace('T', ' ')}" if run.started_at else run.name
    return tag(
        "header",
        paragraph(f"trainperf · {when}", "soft small"),
        tag("h1", text(headline(summary))),
        paragraph(about, "soft"),
        *(paragraph(f"Note: {warning}", "warn") for warning in summary.warnings),
        facts((one.name, one.said) for one in known_facts(summary)),
        bullets(remarks(summary)),
    )


def findings(summary: Summary) -> Markup:
    """What to change, the one that gains most first."""
    if not summary.findings:
        return paragraph(NO_FINDING, "soft")
    return Markup("".join(finding_card(finding_view(finding)) for finding in summary.findings))


def breakdown(summary: Summary) -> Markup:
    """The mean step, phase by phase, as a bar and as rows."""
    rows = phase_rows(summary)
    if not rows:
        return paragraph("No step was recorded.", "absent")
    scale = Scale.fine(sum(row.seconds for row in rows))
    parts = [(row.seconds, row.phase, f"{row.label}: {scale.say(row.seconds)}") for row in rows]
    head = ("phase", "time a step", "share", meter(0.0, "aside"), "note")
    longest = max(row.fraction for row in rows)
    cells = [_phase(summary, row, scale, longest) for row in rows]
    whole = (
        "step", scale.say(sum(row.seconds for row in rows)), fine_share(1.0), meter(0.0, "aside"),
        _of(summary),
    )  # fmt: skip
    return Markup(bar(parts, "the mean step") + table(head, [*cells, whole], words=(0, 3, 4)))


def fit(summary: Summary) -> Markup:
    """Where the time of the whole fit went."""
    spent = [(name, seconds) for name, seconds in ledger(summary) if seconds > 0]
    whole_s = sum(seconds for _, seconds in spent)
    if not whole_s:
        return Markup("")
    parts = [
        (seconds, _SLOTS[place % len(_SLOTS)], f"{name}: {duration(seconds)}")
        for place, (name, seconds) in enumerate(spent)
    ]
    rows = [
        (Markup(_key(colour) + text(name)), duration(seconds), fine_share(seconds / whole_s))
        for (name, seconds), (_, colour, _) in zip(spent, parts, strict=True)
    ]
    total = ("fit", duration(summary.run.fit_s), "")
    return Markup(bar(parts, "the time of the fit") + table(("", "time", "share"), [*rows, total]))


def _of(summary: Summary) -> str:
    run = summary.run
    steps = plural(run.steady_steps, "steady step") if run.steady_steps else "all steps"
    return f"mean of {steps}{' and of all ranks' if len(run.ranks) > 1 else ''}"


def _phase(
    summary: Summary, row: PhaseRow, scale: Scale, longest: float
) -> tuple[str | Markup, ...]:
    colour = row.phase
    name = Markup(_key(colour) + text(row.label))
    absent = not_there(summary, row)
    if absent:
        return (name, "", "", meter(0.0, "aside"), absent)
    return (
        name,
        scale.say(row.seconds),
        fine_share(row.fraction),
        meter(row.fraction / longest, f"b{colour} aside"),
        row.note,
    )


def _key(colour: int) -> Markup:
    return Markup(f'<span class="key b{colour}"></span>')


def finding_card(finding: FindingView) -> Markup:
    """A finding: title, gain, evidence, labelled rows."""
    title = [tag("b", text(finding.title))]
    if finding.gain:
        title.append(Markup(f' <span class="gain">{text(finding.gain)}</span>'))
    lines = [tag("p", *title)]
    if finding.evidence:
        lines.append(paragraph("; ".join(finding.evidence), "soft"))
    rows = [tag("div", tag("dt", text(row.label)), tag("dd", _row(row))) for row in finding.rows]
    return tag("div", *lines, tag("dl", *rows), kind=f"finding {finding.severity}")


def _row(row: FindingRow) -> Markup:
    return tag("code", text(row.text)) if row.label in (NEXT, WHERE) else text(row.text)
