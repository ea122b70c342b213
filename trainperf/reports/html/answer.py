"""The head of a run's page: the answer, the numbers behind it, and what to change."""

from trainperf.core.formatting.html.figures import bar
from trainperf.core.formatting.html.markup import Markup, bullets, paragraph, table, tag, text
from trainperf.core.formatting.html.palette import FIT_PARTS
from trainperf.core.formatting.units import Scale, fine_share
from trainperf.reports.html.components import facts, labelled, meter
from trainperf.reports.layout.finding_view import NO_FINDING, FindingView
from trainperf.reports.run.rows import PhaseRow
from trainperf.reports.run.run_view import RunView


def first(view: RunView) -> Markup:
    """Name, answer, what to do first, how far the run came, single numbers, and notes."""
    # Seconds and the zone, which is UTC, say nothing to a reader.
    when = f" · {view.started_at[:16].replace('T', ' ')}" if view.started_at else ""
    return tag(
        "header",
        paragraph(f"trainperf · {view.name}{when}", "soft small"),
        tag("h1", text(view.headline)),
        labelled(view.first),
        paragraph(f"{view.about} · {view.progress}", "soft"),
        *(paragraph(f"Note: {warning}", "warn") for warning in view.warnings),
        facts((fact.name, fact.value) for fact in view.facts),
        bullets(view.remarks),
    )


def findings(view: RunView) -> Markup:
    """What to change, the one that gains most first."""
    if not view.findings:
        return paragraph(NO_FINDING, "soft")
    return Markup("".join(map(finding_card, view.findings)))


def breakdown(view: RunView) -> Markup:
    """The mean step, phase by phase, as a bar and as rows."""
    rows = view.phases
    if not rows:
        return paragraph("No step was recorded.", "absent")
    step_s = sum(row.seconds for row in rows)
    parts = [(row.seconds, row.phase, f"{row.label}: {row.time}") for row in rows]
    head = ("phase", "time per step", "share", meter(0.0, "aside"), "note")
    longest = max(row.fraction for row in rows)
    cells = [_phase(row, longest) for row in rows]
    step = Scale.fine(step_s).say(step_s)
    whole = ("step", step, fine_share(1.0), meter(0.0, "aside"), view.phases_of)
    return Markup(bar(parts, "the mean step") + table(head, [*cells, whole], words=(0, 3, 4)))


def fit(view: RunView) -> Markup:
    """Where the time of the whole fit went."""
    if not view.fit:
        return Markup("")
    parts = [
        (part.fraction or 0.0, FIT_PARTS[place % len(FIT_PARTS)], f"{part.name}: {part.value}")
        for place, part in enumerate(view.fit)
    ]
    rows = [
        (Markup(_key(colour) + text(part.name)), part.value, fine_share(fraction))
        for part, (fraction, colour, _) in zip(view.fit, parts, strict=True)
    ]
    whole = ("fit", view.fit_time, "")
    return Markup(bar(parts, "the time of the fit") + table(("", "time", "share"), [*rows, whole]))


def _phase(row: PhaseRow, longest: float) -> tuple[str | Markup, ...]:
    name = Markup(_key(row.phase) + text(row.label))
    if row.absent:
        return (name, "", "", meter(0.0, "aside"), row.absent)
    share = meter(row.fraction / longest, f"b{row.phase} aside")
    return (name, row.time, row.share, share, row.note)


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
    return tag("div", *lines, labelled(finding.rows), kind=f"finding {finding.severity}")
